// The lockstep oracle judged by itself: over programs of steps, rounds, forks, drops, permutations,
// truncations and conversions its ring shows exactly what the definition of the window says.
#include "oracle/lockstep.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <random>

namespace windrow::oracle {
namespace {

using Program = std::vector<std::uint16_t>;

constexpr Lockstep::Shape kShape{2, 3, 2};

// Halves every number: a conversion that can be seen, and that is no codec.
void halve(std::span<float> x) {
  for (float& f : x) f *= 0.5f;
}

// Runs a program, one word an operation, whatever the words; returns the first disagreement.
class Machine {
 public:
  Machine(int window, int sinks, int rows) : oracle_(kShape, window, sinks) {
    for (int r = 0; r < rows; r++) oracle_.add_row();
  }

  std::string run(const Program& program) {
    for (std::size_t i = 0; i < program.size(); i++) {
      if (const std::string d = apply(program[i]); !d.empty())
        return "operation " + std::to_string(i) + ": " + d;
      if (const std::string d = oracle_.disagreement(); !d.empty())
        return "after " + std::to_string(i) + ": " + d;
    }
    return {};
  }
  int queries() const { return queries_; }

 private:
  std::string apply(unsigned word) {
    const unsigned op = word % 16, rest = word / 16;
    const int rows = oracle_.rows();
    if (op < 10 || rows == 0) return step(rest);
    const int row = static_cast<int>(rest % static_cast<unsigned>(rows));
    const int choice = static_cast<int>(rest / static_cast<unsigned>(rows));
    if (op == 10 && rows < 4) oracle_.fork(row);
    if (op == 11 && rows > 1) oracle_.drop(row);
    if (op == 12 && rows < 4) oracle_.add_row();
    if (op == 13) oracle_.truncate(row, choice % (oracle_.length(row) + 1));
    if (op == 14) oracle_.convert(row, {halve, {}});
    if (op == 15) {
      Ints order(rows);
      for (int r = 0; r < rows; r++) order[r] = (r + row) % rows;
      oracle_.permute(order);
    }
    return {};
  }

  // Lengths 0..4, then kept wholly, by draw or not at all, or aborted.
  std::string step(unsigned rest) {
    const unsigned how = rest % 4;
    std::minstd_rand draw(rest + 1);
    Ints lengths, keep;
    int total = 0;
    const bool decode = draw() % 3 == 0;
    for (int r = 0; r < oracle_.rows(); r++) {
      lengths.push_back(decode ? 1 : static_cast<int>(draw() % 5));
      total += lengths.back();
      const int some = static_cast<int>(draw() % static_cast<unsigned>(lengths.back() + 1));
      keep.push_back(how == 0 ? lengths.back() : how == 1 ? 0 : some);
    }
    oracle_.begin(lengths, numbers(total * kShape.heads * kShape.key_dim),
                  numbers(total * kShape.heads * kShape.value_dim));
    std::string d = oracle_.disagreement();
    queries_ += total;
    if (how == 3 && draw() % 2 == 0) {
      oracle_.abort();
    } else {
      oracle_.resolve(keep);
    }
    return d;
  }
  std::vector<float> numbers(int n) {
    std::vector<float> out;
    for (int i = 0; i < n; i++) out.push_back(static_cast<float>(++next_));
    return out;
  }

  Lockstep oracle_;
  int next_ = 0, queries_ = 0;
};

TEST(Lockstep, RingEqualsListOverRandomPrograms) {
  std::mt19937 random(20240601);
  int programs = 0;
  long queries = 0;
  for (const int window : {1, 2, 3, 4, 5, 7, kFullWindow}) {
    for (int i = 0; i < 60; i++, programs++) {
      Program program;
      for (int n = 0; n < 40; n++) program.push_back(static_cast<std::uint16_t>(random()));
      Machine machine(window, 0, 1 + i % 3);
      ASSERT_EQ(machine.run(program), "") << "window " << window << " program " << i;
      queries += machine.queries();
    }
  }
  EXPECT_EQ(programs, 420);
  EXPECT_GT(queries, 20000);
}

RC_GTEST_PROP(Lockstep, RingEqualsListOverShrinkablePrograms, ()) {
  const auto program = *rc::gen::arbitrary<Program>();
  const int window = *rc::gen::inRange(1, 6);
  Machine machine(window, 0, *rc::gen::inRange(0, 4));
  RC_ASSERT(machine.run(program) == "");
}

// Feeds one row n tokens, the p-th of key and value p + 1, and keeps them.
void feed(Lockstep& oracle, int row, int n, int first) {
  Ints lengths(oracle.rows()), keep;
  lengths[row] = n;
  std::vector<float> x;
  for (int i = 0; i < n; i++) x.push_back(static_cast<float>(first + i));
  oracle.begin(lengths, x, x);
  oracle.resolve(lengths);
}

TEST(Lockstep, QueriesOfAWindowSeeItsPositionsAndNumbers) {
  Lockstep oracle({1, 1, 1}, 3);
  oracle.add_row();
  oracle.add_row();
  feed(oracle, 0, 5, 0);
  feed(oracle, 1, 1, 100);
  oracle.begin({2, 1}, std::vector<float>{5, 6, 101}, std::vector<float>{5, 6, 101});
  EXPECT_EQ(oracle.seen(0, 0).positions, (Ints{3, 4, 5}));
  EXPECT_EQ(oracle.seen(0, 1).positions, (Ints{4, 5, 6}));
  EXPECT_EQ(oracle.seen(0, 1).kv.k.values, (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(oracle.seen(1, 0).positions, (Ints{0, 1}));
  EXPECT_EQ(oracle.seen(1, 0).kv.v.values, (std::vector<float>{100, 101}));
  EXPECT_THROW(oracle.seen(1, 1), std::invalid_argument);
  oracle.resolve({1, 0});
  EXPECT_EQ(oracle.length(0), 6);
  EXPECT_EQ(oracle.length(1), 1);
  EXPECT_EQ(oracle.newest(0).kv.k.values, (std::vector<float>{3, 4, 5}));
}

TEST(Lockstep, SinksStayVisible) {
  Lockstep oracle({1, 1, 1}, 2, 1);
  oracle.add_row();
  feed(oracle, 0, 5, 0);
  oracle.begin({1}, std::vector<float>{5}, std::vector<float>{5});
  EXPECT_EQ(oracle.seen(0, 0).positions, (Ints{0, 4, 5}));
}

TEST(Lockstep, AbortLeavesTheRingAsItWas) {
  Lockstep oracle({1, 1, 1}, 3);
  oracle.add_row();
  feed(oracle, 0, 5, 0);
  const RowColumns before = oracle.newest(0);
  oracle.begin({2}, std::vector<float>{7, 8}, std::vector<float>{7, 8});
  oracle.abort();
  EXPECT_TRUE(same_bits(oracle.newest(0).kv, before.kv));
  EXPECT_EQ(oracle.newest(0).begin, before.begin);
}

TEST(Lockstep, ARowStoresWhatItsCodecDecodes) {
  const Codec codec = Codec::affine(4, 32, DType::kF32);
  Lockstep oracle({1, 32, 32}, 4);
  oracle.add_row({decode_hook(codec), {}});
  oracle.add_row();
  std::vector<float> x, stored;
  for (int i = 0; i < 32; i++) x.push_back(static_cast<float>(i * i % 37) * 0.17f - 2);
  stored = x;
  decode_hook(codec)(stored);
  ASSERT_NE(stored, x);
  std::vector<float> both = x;
  both.insert(both.end(), x.begin(), x.end());
  oracle.begin({1, 1}, both, both);
  EXPECT_EQ(oracle.seen(0, 0).kv.k.values, stored);
  EXPECT_EQ(oracle.seen(0, 0).kv.v.values, x);
  EXPECT_EQ(oracle.seen(1, 0).kv.k.values, x);
  oracle.resolve({1, 1});
  oracle.convert(1, {decode_hook(codec), {}});  // delayed precision, at a step's boundary
  EXPECT_EQ(oracle.newest(1).kv.k.values, stored);
}

// The hook for attention differs from MLX's decoding by the last rounding only, and not at all in f32
// but for the one fused product.
TEST(CodecHook, AttentionReadsScaleTimesCodePlusBias) {
  std::mt19937 random(7);
  for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      const Codec codec = Codec::affine(bits, 32, input);
      std::vector<float> x(64);
      for (float& f : x) f = std::uniform_real_distribution<float>(-1, 1)(random);
      std::vector<float> read = x, decoded = x;
      attention_hook(codec)(read);
      decode_hook(codec)(decoded);
      // Two roundings to `input`, of numbers below 4: half a unit of the last place each.
      const float unit = input == DType::kF32 ? 0x1p-22f : input == DType::kF16 ? 0x1p-9f : 0x1p-6f;
      for (std::size_t i = 0; i < x.size(); i++) ASSERT_NEAR(read[i], decoded[i], unit) << codec.to_string();
    }
  }
  std::vector<float> plain(16, 1.00390625f), want(16, 1.0f);  // 1 + 2^-8 ties to even in bf16
  attention_hook(Codec::bf16())(plain);
  EXPECT_EQ(plain, want);
}

TEST(Lockstep, MisuseThrows) {
  EXPECT_THROW(Lockstep({1, 1, 1}, 0), std::invalid_argument);
  Lockstep oracle({1, 1, 1}, 2);
  oracle.add_row();
  const std::vector<float> one{1}, two{1, 2};
  EXPECT_THROW(oracle.begin({1, 1}, two, two), std::invalid_argument);  // lengths of all rows
  EXPECT_THROW(oracle.begin({1}, two, two), std::invalid_argument);     // as many numbers as tokens
  EXPECT_THROW(oracle.begin({2}, one, one), std::invalid_argument);
  oracle.begin({1}, one, one);
  EXPECT_THROW(oracle.drop(0), std::logic_error);  // a step is open
  EXPECT_THROW(oracle.resolve({2}), std::invalid_argument);
  oracle.resolve({1});
  EXPECT_EQ(oracle.length(0), 1);
}

}  // namespace
}  // namespace windrow::oracle
