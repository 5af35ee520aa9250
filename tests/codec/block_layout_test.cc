// Block layout: where bytes lie, records in and out, and the store of append.
#include "codec/block_layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "base/memory.h"
#include "codec/codec_inputs.h"
#include "support/simd_targets.h"

namespace windrow {
namespace {

using testing::Numbers;
using testing::Record;

constexpr int kPage = 64;

struct Block {
  explicit Block(const BlockLayout& layout)
      : arena(std::move(*Arena::create(layout.bytes, "test block"))), data(arena.data()) {}
  std::vector<std::byte> copy() const { return {data, data + arena.size()}; }
  Arena arena;
  std::byte* data;
};

// Layouts of two different codecs with different dims, keys and values each having been every codec.
std::vector<BlockLayout> layouts(int page_tokens = kPage) {
  std::vector<BlockLayout> out;
  const auto codecs = testing::all_codecs();
  for (std::size_t i = 0; i < codecs.size(); i++) {
    const Codec& k = codecs[i];
    const Codec& v = codecs[(i + 7) % codecs.size()];
    out.push_back(BlockLayout::make(k, k.is_affine() ? 3 * k.group() : 80, v, v.is_affine() ? v.group() : 48,
                                    page_tokens));
  }
  return out;
}

std::string label(const BlockLayout& l) {
  return "K " + l.keys.codec.to_string() + " V " + l.values.codec.to_string();
}

Record random_record(const SideLayout& side, std::mt19937& random) {
  Record r(side.codec, side.head_dim);
  for (std::uint32_t& w : r.words) w = random();
  for (std::uint32_t& p : r.params) p = random();
  return r;
}

TEST(BlockLayout, BytesArePositionsTimesRecordsWithAlignedParts) {
  for (const BlockLayout& l : layouts()) {
    SCOPED_TRACE(label(l));
    const std::size_t k = l.keys.codec.record_bytes(l.keys.head_dim);
    const std::size_t v = l.values.codec.record_bytes(l.values.head_dim);
    EXPECT_EQ(l.bytes, kPage * (k + v));  // pages of 16 positions leave nothing to pad
    EXPECT_EQ(l.page_tokens, kPage);
    std::size_t end = 0;
    for (const SideLayout* side : {&l.keys, &l.values}) {
      EXPECT_EQ(side->codes_offset, end);
      EXPECT_EQ(side->codes_offset % 64, 0u);
      end += static_cast<std::size_t>(kPage * side->words) * 4;
      EXPECT_EQ(side->params_offset, end);
      EXPECT_EQ(side->params_offset % 64, 0u);
      end += static_cast<std::size_t>(kPage * side->params) * 4;
    }
    EXPECT_EQ(end, l.bytes);
  }
}

TEST(BlockLayout, AKnownPageOfGemmaTakesTheBytesOfItsArithmetic) {
  const Codec q4 = Codec::affine(4, 64);
  // 256 codes of 4 bits and 4 pairs of 16 bits, twice, 64 positions.
  EXPECT_EQ(BlockLayout::make(q4, 256, q4, 256, 64).bytes, 2u * 64 * (128 + 16));
  EXPECT_EQ(BlockLayout::make(Codec::bf16(), 128, Codec::bf16(), 64, 16).bytes, 16u * (256 + 128));
}

TEST(BlockLayout, AKeyTileLineHoldsOneWordOfSixteenPositions) {
  const SideLayout keys = BlockLayout::make(Codec::bf16(), 32, Codec::bf16(), 32, kPage).keys;
  EXPECT_EQ(keys.code_index(0, 0), 0u);
  EXPECT_EQ(keys.code_index(5, 0), 5u);
  EXPECT_EQ(keys.code_index(5, 3), 3u * 16 + 5);
  EXPECT_EQ(keys.code_index(21, 3), 16u * 16 + 3 * 16 + 5);
}

TEST(BlockLayout, AValuePositionHoldsItsWordsSideBySide) {
  const SideLayout values = BlockLayout::make(Codec::bf16(), 32, Codec::bf16(), 32, kPage).values;
  EXPECT_EQ(values.code_index(0, 15), 15u);
  EXPECT_EQ(values.code_index(21, 3), 21u * 16 + 3);
}

TEST(BlockLayout, ParamsOfBothSidesAreInterleavedByPositions) {
  const BlockLayout l = BlockLayout::make(Codec::affine(4, 32), 96, Codec::affine(8, 32), 64, kPage);
  EXPECT_EQ(l.keys.param_index(21, 2), 16u * 3 + 2 * 16 + 5);
  EXPECT_EQ(l.values.param_index(21, 1), 16u * 2 + 1 * 16 + 5);
}

TEST(BlockLayout, ValuesOfWidthsThatDivideAWordAreSliced) {
  const BlockLayout l = BlockLayout::make(Codec::affine(8, 32), 32, Codec::affine(8, 32), 32, kPage);
  const Block block(l);
  const std::vector<std::uint32_t> record = {0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c,
                                             0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c};
  l.values.put(block.data, 5, record, std::vector<std::uint32_t>{0});
  // Word j holds elements j, j + 8, j + 16 and j + 24.
  EXPECT_EQ(l.values.codes(block.data)[l.values.code_index(5, 0)], 0x18100800u);
  EXPECT_EQ(l.values.codes(block.data)[l.values.code_index(5, 3)], 0x1b130b03u);
  l.keys.put(block.data, 5, record, std::vector<std::uint32_t>{0});
  EXPECT_EQ(l.keys.codes(block.data)[l.keys.code_index(5, 3)], 0x0f0e0d0cu);
}

TEST(BlockLayout, PagesUnderATileAreOneNarrowerTileWithAlignedParts) {
  for (const int page_tokens : {1, 2, 4, 8}) {
    const BlockLayout l = BlockLayout::make(Codec::affine(4, 32), 96, Codec::bf16(), 80, page_tokens);
    EXPECT_EQ(l.keys.code_lanes, page_tokens);
    std::vector<int> owners(l.bytes / 4, 0);
    for (const SideLayout* side : {&l.keys, &l.values}) {
      EXPECT_EQ(side->codes_offset % 64, 0u);
      EXPECT_EQ(side->params_offset % 64, 0u);
      for (int position = 0; position < page_tokens; position++) {
        for (int w = 0; w < side->words; w++) {
          owners.at(side->codes_offset / 4 + side->code_index(position, w))++;
        }
        for (int w = 0; w < side->params; w++) {
          owners.at(side->params_offset / 4 + side->param_index(position, w))++;
        }
      }
    }
    EXPECT_EQ(l.bytes % 64, 0u);
    EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), page_tokens * (12 + 3 + 40));
    EXPECT_EQ(std::count(owners.begin(), owners.end(), 0) + page_tokens * (12 + 3 + 40),
              static_cast<long>(owners.size()));
  }
}

TEST(BlockLayout, CopiedRecordsAreEqualWhateverThePageSizes) {
  std::mt19937 random(4);
  for (const Codec& codec : testing::all_codecs()) {
    const int dim = codec.is_affine() ? codec.group() : 48;
    for (const int from_tokens : {1, 2, 8, 16, 64}) {
      for (const int to_tokens : {1, 4, 16, 128}) {
        const BlockLayout from = BlockLayout::make(codec, dim, codec, dim, from_tokens);
        const BlockLayout to = BlockLayout::make(codec, dim, codec, dim, to_tokens);
        const Block source(from), target(to);
        for (const auto& [side, to_side] :
             {std::pair{&from.keys, &to.keys}, std::pair{&from.values, &to.values}}) {
          const Record r = random_record(*side, random);
          side->put(source.data, from_tokens - 1, r.words, r.params);
          copy_record(*side, source.data, from_tokens - 1, *to_side, target.data, to_tokens / 2);
          Record got(codec, dim);
          to_side->get(target.data, to_tokens / 2, got.words, got.params);
          ASSERT_EQ(got, r) << codec.to_string() << " " << from_tokens << " " << to_tokens;
        }
      }
    }
  }
}

TEST(BlockLayout, EveryWordOfABlockBelongsToOnePositionOfOneSide) {
  for (const BlockLayout& l : layouts()) {
    std::vector<int> owners(l.bytes / 4, 0);
    for (const SideLayout* side : {&l.keys, &l.values}) {
      for (int position = 0; position < kPage; position++) {
        for (int w = 0; w < side->words; w++) {
          owners.at(side->codes_offset / 4 + side->code_index(position, w))++;
        }
        for (int w = 0; w < side->params; w++) {
          owners.at(side->params_offset / 4 + side->param_index(position, w))++;
        }
      }
    }
    EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), static_cast<long>(owners.size())) << label(l);
  }
}

TEST(BlockLayout, RecordsComeBackInWhateverOrderTheyWerePut) {
  std::mt19937 random(1);
  for (const BlockLayout& l : layouts()) {
    const Block block(l);
    std::map<std::pair<bool, int>, Record> put;
    for (int i = 0; i < 300; i++) {  // with overwriting
      const bool key = random() % 2;
      const SideLayout& side = key ? l.keys : l.values;
      const int position = static_cast<int>(random() % kPage);
      const Record r = random_record(side, random);
      side.put(block.data, position, r.words, r.params);
      put.insert_or_assign({key, position}, r);
    }
    for (const auto& [where, record] : put) {
      const SideLayout& side = where.first ? l.keys : l.values;
      Record got(side.codec, side.head_dim);
      side.get(block.data, where.second, got.words, got.params);
      ASSERT_EQ(got, record) << label(l) << " position " << where.second;
    }
  }
}

TEST(BlockLayout, APutChangesOnlyTheBytesOfItsPosition) {
  std::mt19937 random(2);
  for (const BlockLayout& l : layouts()) {
    const Block block(l);
    for (const SideLayout* side : {&l.keys, &l.values}) {
      const int position = static_cast<int>(random() % kPage);
      const auto before = block.copy();
      Record r(side->codec, side->head_dim);
      std::fill(r.words.begin(), r.words.end(), 0xffffffffu);
      std::fill(r.params.begin(), r.params.end(), 0xffffffffu);
      side->put(block.data, position, r.words, r.params);
      const auto after = block.copy();
      std::size_t changed = 0;
      for (std::size_t i = 0; i < after.size(); i++) changed += before[i] != after[i];
      EXPECT_EQ(changed, side->codec.record_bytes(side->head_dim)) << label(l);
    }
  }
}

TEST(StoreVector, EqualsEncodeThenPutOnEveryTargetAndTouchesNothingElse) {
  testing::on_every_target([] {
    std::mt19937 random(3);
    std::vector<BlockLayout> all = layouts();
    for (const int page_tokens : {1, 8}) {
      for (const BlockLayout& l : layouts(page_tokens)) all.push_back(l);
    }
    for (const BlockLayout& l : all) {
      const Block stored(l), put(l);
      for (int kind = 0; kind < static_cast<int>(Numbers::kCount); kind++) {
        for (const SideLayout* side : {&l.keys, &l.values}) {
          const auto n = static_cast<std::size_t>(side->head_dim);
          const int position = static_cast<int>(random() % static_cast<unsigned>(l.page_tokens));
          const auto x = testing::numbers(static_cast<Numbers>(kind), n + 1, random);
          store_vector(*side, stored.data, position, x.data() + 1);
          Record record(side->codec, side->head_dim);
          encode_record_scalar(side->codec, {x.data() + 1, n}, record.words, record.params);
          side->put(put.data, position, record.words, record.params);
        }
        ASSERT_TRUE(stored.copy() == put.copy()) << label(l) << " kind " << kind;
      }
    }
  });
}

TEST(StoreVector, TheLastPositionOfALastBlockStaysInsideIt) {
  for (const BlockLayout& l : layouts()) {
    // A heap block of exactly its bytes, so that AddressSanitizer sees the first byte too many.
    const std::unique_ptr<std::byte, void (*)(void*)> block(
        static_cast<std::byte*>(std::aligned_alloc(64, l.bytes)), std::free);
    std::memset(block.get(), 0, l.bytes);
    for (const SideLayout* side : {&l.keys, &l.values}) {
      const std::vector<float> x(static_cast<std::size_t>(side->head_dim), 1.5f);
      store_vector(*side, block.get(), kPage - 1, x.data());
      Record got(side->codec, side->head_dim);
      side->get(block.get(), kPage - 1, got.words, got.params);
      std::vector<float> y(x.size());
      decode_record(side->codec, got.words, got.params, y);
      EXPECT_EQ(x, y) << label(l);
    }
  }
}

RC_GTEST_PROP(StoreVector, APositionsBytesDoNotDependOnWhatWasStoredAround, ()) {
  const auto all = layouts();
  const BlockLayout& l = all[*rc::gen::inRange<std::size_t>(0, all.size())];
  const SideLayout& side = *rc::gen::arbitrary<bool>() ? l.keys : l.values;
  const int position = *rc::gen::inRange(0, kPage);
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const auto x = testing::numbers(Numbers::kNormal, static_cast<std::size_t>(side.head_dim), random);
  const Block alone(l), crowded(l);
  store_vector(side, alone.data, position, x.data());
  for (int p = 0; p < kPage; p++) {
    const auto other = testing::numbers(Numbers::kHuge, x.size(), random);
    store_vector(side, crowded.data, p, p == position ? x.data() : other.data());
  }
  Record a(side.codec, side.head_dim), b(side.codec, side.head_dim);
  side.get(alone.data, position, a.words, a.params);
  side.get(crowded.data, position, b.words, b.params);
  RC_ASSERT(a == b);
}

}  // namespace
}  // namespace windrow
