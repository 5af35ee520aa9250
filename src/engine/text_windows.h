// A text cut into windows that a model sees one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "windrow/quality.h"

namespace windrow {

struct TextWindow {
  std::vector<std::int32_t> inputs;   // what is fed
  std::size_t first = 0;              // inputs from here on predict a token that is scored
  std::vector<std::int32_t> targets;  // [inputs.size() - first]: those tokens
};

// Windows of at most `context` positions that score up to `most` tokens (0: all), in order, each once.
// REQUIRES start.size() < context.
inline std::vector<TextWindow> cut_windows(const QualityText& text, std::size_t context, std::size_t most) {
  std::vector<TextWindow> windows;
  const std::size_t before = text.start.size(), first = before > 0 ? before - 1 : 0;
  // Without a start the first token of the text is only fed.
  const std::size_t scorable = text.ids.size() - (before == 0 && !text.ids.empty() ? 1 : 0);
  const std::size_t total = most > 0 ? std::min(most, scorable) : scorable;
  for (std::size_t done = 0; done < total;) {
    TextWindow w;
    const std::size_t count = std::min(context - first, total - done);
    const auto at = text.ids.begin() + static_cast<std::ptrdiff_t>(done);
    w.first = first;
    w.inputs = text.start;
    w.inputs.insert(w.inputs.end(), at, at + static_cast<std::ptrdiff_t>(first + count - before));
    const auto target = at + (before == 0 ? 1 : 0);
    w.targets.assign(target, target + static_cast<std::ptrdiff_t>(count));
    windows.push_back(std::move(w));
    done += count;
  }
  return windows;
}

}  // namespace windrow
