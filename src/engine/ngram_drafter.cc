// Drafts from the text itself: what followed its last few tokens before.
#include <fmt/format.h>

#include <algorithm>
#include <array>
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
  struct Found {
    std::size_t place = 0;
    int length = 0;  // of the run
  };
  Found find(std::span<const std::int32_t> text, const NgramOptions& o) const {
    const auto most = static_cast<int>(std::min(text.size(), static_cast<std::size_t>(o.longest)));
    for (int n = most; n >= o.shortest; n--) {
      const auto& places = places_[static_cast<std::size_t>(n - o.shortest)];
      const auto found = places.find(hash(text, text.size(), n));
      if (found == places.end()) continue;
      const auto length = static_cast<std::ptrdiff_t>(n);
      const auto there = text.begin() + static_cast<std::ptrdiff_t>(found->second);
      if (std::equal(text.end() - length, text.end(), there - length)) return {found->second, n};
    }
    return {};
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

// How often a token behind a run of so many repeated ones was repeated, too.
class Repetition {
 public:
  double rate(int run) const {
    const Count& c = counts_[at(run)];
    const double prior = run / (run + 1.0);  // a guess, which a few tokens outweigh
    return (c.right + kPrior * prior) / (c.seen + kPrior);
  }
  void add(int run, bool right) {
    Count& c = counts_[at(run)];
    c.seen += 1;
    c.right += right ? 1 : 0;
  }

 private:
  static constexpr double kPrior = 4;
  static constexpr std::size_t kRuns = 16;  // longer ones are alike
  static std::size_t at(int run) { return std::min(static_cast<std::size_t>(run), kRuns) - 1; }
  struct Count {
    double seen = 0, right = 0;
  };
  std::array<Count, kRuns> counts_ = {};
};

class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(const NgramOptions& options) : options_(options) {}

  Status propose(std::span<const DraftRequest> requests, std::span<Draft> drafts) override try {
    for (std::size_t r = 0; r < requests.size(); r++) {
      const std::span<const std::int32_t> text = requests[r].tokens;
      Text& known = texts_[requests[r].id];
      known.learn(text);
      known.index.grow(text, options_);
      const auto [place, run] = known.index.find(text, options_);
      drafts[r] = {};
      known.guess.clear();
      if (place == 0) continue;
      known.at = text.size();
      known.run = run;
      // Beyond the text's end a repetition goes on with what was drafted.
      std::vector<std::int32_t>& guess = known.guess;
      for (std::size_t i = place; guess.size() < static_cast<std::size_t>(requests[r].most); i++) {
        guess.push_back(i < text.size() ? text[i] : guess[i - text.size()]);
      }
      double chance = 1;
      for (std::size_t i = 0; i < guess.size(); i++) {
        chance *= known.repetition.rate(run + static_cast<int>(i));
        if (chance < static_cast<double>(requests[r].least)) break;
        drafts[r].tokens.push_back(guess[i]);
        drafts[r].chances.push_back(static_cast<float>(chance));
      }
    }
    return {};
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }

  void forget(std::uint64_t id) override { texts_.erase(id); }

 private:
  struct Text {
    TextIndex index = {};
    Repetition repetition = {};
    // What the last draft might have been, whole: of a draft that was not worth verifying is learned, too.
    std::vector<std::int32_t> guess = {};
    std::size_t at = 0;  // its place in the text
    int run = 0;

    void learn(std::span<const std::int32_t> text) {
      for (std::size_t i = 0; i < guess.size() && at + i < text.size(); i++) {
        const bool right = guess[i] == text[at + i];
        repetition.add(run + static_cast<int>(i), right);
        if (!right) return;
      }
    }
  };
  NgramOptions options_;
  std::unordered_map<std::uint64_t, Text> texts_;
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
