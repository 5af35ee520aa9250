#include "model/product_input.h"

#include <algorithm>

#include "base/checked.h"
#include "base/memory.h"

namespace windrow::internal {
namespace {

// Preparing less than this many numbers takes about as long as waking the pool.
constexpr std::size_t kAloneNumbers = 2048;

std::byte* kept_buffer(std::size_t bytes) {
  thread_local Arena buffer;
  if (buffer.size() < bytes) {
    buffer = Arena();
    Result<Arena> arena = Arena::create(bytes, "product input");
    if (!arena.ok()) return nullptr;
    buffer = std::move(*arena);
  }
  return buffer.data();
}

std::optional<std::size_t> panel_bytes(const PanelFunctions& panel, const InputRows& in) {
  return checked_product({round_up(in.rows, panel.block_rows), in.cols, sizeof(float)});
}

void prepare(const PreparedInput& to, const InputRows& in, ThreadPool& pool) {
  const AffineFunctions functions = affine_functions();
  const std::size_t blocks = to.blocks(), groups = to.groups();
  const std::size_t threads =
      in.rows * in.cols < kAloneNumbers ? 1 : static_cast<std::size_t>(pool.threads());
  // One block after another, whole; fewer blocks than threads in shares of their groups.
  const std::size_t shares = blocks >= threads ? 1 : std::min(groups, div_up(threads, blocks));
  const auto task = [&](std::size_t i, int) {
    const std::size_t share = i % shares;
    functions.prepare(to, in.x, in.ldx, i / shares, groups * share / shares, groups * (share + 1) / shares);
  };
  if (threads == 1) {
    for (std::size_t i = 0; i < blocks * shares; i++) task(i, 0);
  } else {
    pool.parallel_for(blocks * shares, task);
  }
}

}  // namespace

InputForms::InputForms(std::span<const ProductOutput> outputs, const InputRows& in, ThreadPool& pool) {
  const PanelFunctions panel = panel_functions();
  std::size_t bytes = 0;
  std::array<std::size_t, 9> offsets;
  const auto reserve = [&](std::optional<std::size_t> size) {
    const auto padded = size ? checked_add(*size, 64) : std::nullopt;
    const auto sum = padded ? checked_add(bytes, *padded) : std::nullopt;
    if (sum) bytes = *sum / 64 * 64;
    return sum.has_value();
  };
  const auto is_plain = [](const ProductOutput& o) { return !o.w->is_affine(); };
  const bool plain = in.rows >= panel.from_rows && std::any_of(outputs.begin(), outputs.end(), is_plain) &&
                     reserve(panel_bytes(panel, in));  // at the buffer's begin
  for (const ProductOutput& o : outputs) {
    if (is_plain(o) || find(input_format(*o.w)) != nullptr) continue;
    const PreparedInput p{input_format(*o.w), in.cols, in.rows, nullptr};
    const std::size_t at = bytes;
    if (!reserve(p.bytes())) continue;
    offsets[count_] = at;
    prepared_[count_++] = p;
  }
  std::byte* buffer = bytes == 0 ? nullptr : kept_buffer(bytes);
  if (buffer == nullptr) {
    count_ = 0;
    return;
  }
  for (std::size_t i = 0; i < count_; i++) {
    prepared_[i].data = buffer + offsets[i];
    prepare(prepared_[i], in, pool);
  }
  if (!plain) return;
  auto* to = reinterpret_cast<float*>(buffer);
  pool.parallel_for(div_up(in.rows, panel.block_rows),
                    [&](std::size_t block, int) { panel.fill(in.x, in.ldx, in.cols, in.rows, block, to); });
  panel_ = to;
}

}  // namespace windrow::internal
