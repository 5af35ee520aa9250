// Attention kernels against the f64 reference, and a token alone against itself in its step, for shapes and
// rows that the input's bytes choose.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "attention/attend.h"
#include "attention/fixture.h"
#include "attention/validate.h"

namespace windrow::testing {
namespace {

// Choices from the input; zeros once it has ended.
class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  int below(int n) { return at_ < size_ ? data_[at_++] % n : 0; }
  int upto(int n) {  // of two bytes
    const int high = below(256);
    return (high * 256 + below(256)) % (n + 1);
  }
  template <std::size_t n>
  int one_of(const int (&values)[n]) {
    return values[below(static_cast<int>(n))];
  }
  Codec codec() {
    switch (below(4)) {
      case 0: return Codec::f32();
      case 1: return below(2) == 0 ? Codec::bf16() : Codec::f16();
      default: break;
    }
    const DType inputs[] = {DType::kBF16, DType::kF32, DType::kF16};
    return Codec::affine(one_of({2, 3, 4, 5, 6, 8}), 32, inputs[below(3)]);
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "attention: %s\n", what);
  std::abort();
}

std::vector<float> attend(const internal::Kernels& kernels, const ReadFixture& fixture,
                          const AttentionParams& params, ThreadPool* pool) {
  const KvRead read = fixture.read();
  const std::vector<float> q = fixture.queries();
  std::vector<float> out(fixture.out_size());
  require(internal::validate_attention(read, q.size(), params, out.size()).ok(), "a read that is refused");
  require(internal::attend_with(kernels, read, q, params, out, pool).ok(), "a read that fails");
  return out;
}

void run(Choices choices) {
  static const internal::Kernels kernels = internal::select_kernels();
  static ThreadPool pool = *ThreadPool::create(3);
  Shape shape;
  shape.keys = choices.codec();
  shape.values = choices.codec();
  shape.head_dim = choices.one_of({32, 64, 96});
  shape.value_dim = choices.one_of({32, 64, 128});
  shape.kv_heads = 1 + choices.below(2);
  shape.q_heads = shape.kv_heads * (1 + choices.below(5));
  shape.page_tokens = choices.one_of({16, 32, 64, 8, 1});
  if (choices.below(3) > 0) {
    shape.window = 1 + choices.upto(400);
    shape.sinks = choices.below(4) == 0 ? choices.below(200) : 0;
  }
  std::vector<RowSpec> rows(static_cast<std::size_t>(1 + choices.below(3)));
  for (RowSpec& row : rows) {
    row.content = choices.below(5);
    row.history = choices.upto(choices.below(8) == 0 ? 600 : 150);
    row.fresh = choices.below(5);
    if (choices.below(4) > 0) continue;
    for (int i = 0; i < row.fresh; i++) row.parents.push_back(choices.below(i + 1) - 1);
  }
  AttentionParams params{.q_heads = shape.q_heads,
                         .scale = 1 / std::sqrt(static_cast<float>(shape.head_dim))};
  if (choices.below(4) == 0) params.softcap = 20;

  const ReadFixture fixture(shape, rows, static_cast<unsigned>(choices.below(256)));
  const std::vector<float> out = attend(kernels, fixture, params, &pool);
  if (out.empty()) return;
  std::vector<float> expected(out.size());
  require(attend_reference(fixture.read(), fixture.queries(), params, expected).ok(), "no reference");
  require(relative_error(out, expected) <= 2e-5, "too far from the reference");
  int token = 0;
  for (const RowSpec& row : rows) {
    // The last token of a row that is no tree, by itself, on other pages, by one thread.
    token += row.fresh;
    if (row.fresh == 0 || !row.parents.empty()) continue;
    const ReadFixture alone(shape, {{.content = row.content, .history = row.history + row.fresh - 1}}, 7, 0);
    require(same_bits(attend(kernels, alone, params, nullptr), token_of(shape, out, token - 1)),
            "a token alone differs");
  }
}

}  // namespace
}  // namespace windrow::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  windrow::testing::run({data, size});
  return 0;
}
