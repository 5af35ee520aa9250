// Drafts from the text itself: what followed its last few tokens before.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <unordered_map>

#include "base/out_of_memory.h"
#include "windrow/speculation.h"

namespace windrow {
namespace {

// Where each run of n tokens ended last, for each n.
class TextIndex {
 public:
  // Takes in what the text grew by. Runs that end with the text itself have no token behind them yet.
  void grow(std::span<const std::int32_t> text, const NgramOptions& o) {
    if (places_.empty()) places_.resize(static_cast<std::size_t>(o.longest - o.shortest + 1));
    for (; indexed_ + 1 <= text.size(); indexed_++) {
      for (int n = o.shortest; n <= o.longest && static_cast<std::size_t>(n) <= indexed_; n++) {
        places_[static_cast<std::size_t>(n - o.shortest)][hash(text, indexed_, n)] = indexed_;
      }
    }
  }

  // Where the longest run that ends the text stood before: the place of the token behind it; 0: nowhere.
  std::size_t find(std::span<const std::int32_t> text, const NgramOptions& o) const {
    const auto most = static_cast<int>(std::min(text.size(), static_cast<std::size_t>(o.longest)));
    for (int n = most; n >= o.shortest; n--) {
      const auto& places = places_[static_cast<std::size_t>(n - o.shortest)];
      const auto found = places.find(hash(text, text.size(), n));
      if (found == places.end()) continue;
      const auto length = static_cast<std::ptrdiff_t>(n);
      const auto there = text.begin() + static_cast<std::ptrdiff_t>(found->second);
      if (std::equal(text.end() - length, text.end(), there - length)) return found->second;
    }
    return 0;
  }

 private:
  // Of the n tokens before `end`: FNV-1a over their numbers.
  static std::uint64_t hash(std::span<const std::int32_t> text, std::size_t end, int n) {
    std::uint64_t h = 0xcbf29ce484222325u;
    for (std::size_t i = end - static_cast<std::size_t>(n); i < end; i++) {
      h = (h ^ static_cast<std::uint32_t>(text[i])) * 0x100000001b3u;
    }
    return h;
  }

  std::vector<std::unordered_map<std::uint64_t, std::size_t>> places_;
  std::size_t indexed_ = 1;  // runs that end before here are in; none ends before the first token
};

class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(const NgramOptions& options) : options_(options) {}

  Status propose(std::span<const DraftRequest> requests, std::span<Draft> drafts) override try {
    for (std::size_t r = 0; r < requests.size(); r++) {
      const std::span<const std::int32_t> text = requests[r].tokens;
      TextIndex& index = texts_[requests[r].id];
      index.grow(text, options_);
      const std::size_t place = index.find(text, options_);
      drafts[r] = {};
      if (place == 0) continue;
      // Beyond the text's end a repetition goes on with what was drafted.
      std::vector<std::int32_t>& out = drafts[r].tokens;
      for (std::size_t i = place; out.size() < static_cast<std::size_t>(requests[r].most); i++) {
        out.push_back(i < text.size() ? text[i] : out[i - text.size()]);
      }
    }
    return {};
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }

  void forget(std::uint64_t id) override { texts_.erase(id); }

 private:
  NgramOptions options_;
  std::unordered_map<std::uint64_t, TextIndex> texts_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_ngram_drafter(const NgramOptions& o) try {
  constexpr int kLongest = 64;  // an index holds longest - shortest + 1 entries a token
  if (o.shortest < 1 || o.longest < o.shortest || o.longest > kLongest) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("ngram drafter: {} to {} tokens, allowed are 1 to {}", o.shortest, o.longest, kLongest));
  }
  return std::unique_ptr<Drafter>(std::make_unique<NgramDrafter>(o));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace windrow
