// The library example of README.md: two rows decode side by side over 4-bit windowed state.
#include <windrow/attention.h>
#include <windrow/store.h>

#include <cstdio>
#include <vector>

using namespace windrow;

int main() {
  // Two sliding layers and a full one. bytes() is exact before anything is allocated.
  Result<StatePlan> plan = StatePlan::Builder({.rows = 2, .tokens = 1024, .step_tokens = 64})
                               .attention({.layers = {0, 1},
                                           .window = 128,
                                           .kv_heads = 2,
                                           .head_dim = 64,
                                           .keys = Codec::affine(4),
                                           .values = Codec::affine(4)})
                               .attention({.layers = {2}, .kv_heads = 2, .head_dim = 64})
                               .build();
  if (!plan.ok()) return std::fprintf(stderr, "%s\n", plan.status().message().c_str()), 1;
  Result<StateStore> store = StateStore::create(*plan);
  Result<AttentionKernels> kernels = AttentionKernels::select(*plan);
  if (!store.ok() || !kernels.ok()) return 1;

  Result<Row> a = store->new_row(), b = store->new_row();
  if (!a.ok() || !b.ok()) return 1;
  Row* rows[] = {&*a, &*b};
  const int lengths[] = {5, 1};
  Result<Step> step = store->begin(rows, lengths);  // 6 new tokens, packed by row
  if (!step.ok()) return 1;

  const int q_heads = 4;
  std::vector<float> k(6 * 2 * 64, 0.5f), v(6 * 2 * 64, 2.0f), q(6 * q_heads * 64, 0.1f), out(q.size());
  for (int layer = 0; layer < 3; layer++) {
    if (!step->append(layer, k, v).ok()) return 1;
    Result<KvRead> read = step->read(layer);  // history plus this step's tokens
    if (!read.ok()) return 1;
    const AttentionParams params{.q_heads = q_heads, .scale = 0.125f};
    if (!kernels->attend(*read, q, params, out, nullptr).ok()) return 1;
  }
  const int keep[] = {3, 1};  // accept 3 of the 5 drafted tokens of a, and b's one
  if (!step->resolve(keep).ok()) return 1;

  std::printf("a has %d positions, b has %d, the store maps %zu bytes, out[0] = %.3f\n", a->length(),
              b->length(), store->bytes(), static_cast<double>(out[0]));
  return a->length() == 3 && b->length() == 1 && store->bytes() == plan->bytes() ? 0 : 1;
}
