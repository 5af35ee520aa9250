// Batches with drafts that are known to be wrong here and there, against texts that were written alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "model/model_fixture.h"
#include "windrow/scheduler.h"

namespace windrow::testing {

using Texts = std::map<std::uint64_t, std::vector<std::int32_t>>;

// Drafts from the known text with errors at random: chains of 0 to 8 tokens and trees of up to 16.
class NoisyDrafter final : public Drafter {
 public:
  NoisyDrafter(const Texts& texts, int vocab, unsigned seed) : texts_(texts), vocab_(vocab), random_(seed) {}
  Status propose(std::span<const DraftRequest> requests, std::span<Draft> drafts) override {
    for (std::size_t r = 0; r < requests.size(); r++) {
      Draft& d = drafts[r] = {};
      const bool tree = below(2) == 0;
      const int size = below(std::min(requests[r].most, tree ? 16 : 8) + 1);
      for (int i = 0; i < size; i++) {
        const int parent = tree ? below(i + 1) - 1 : i - 1;
        std::size_t depth = 0;
        for (int p = parent; p >= 0; p = tree ? d.parents[static_cast<std::size_t>(p)] : p - 1) depth++;
        const std::vector<std::int32_t>& text = texts_.at(requests[r].id);
        const std::size_t place = requests[r].tokens.size() + depth;
        const bool right = place < text.size() && below(4) != 0;
        d.tokens.push_back(right ? text[place] : below(vocab_));
        if (tree) d.parents.push_back(parent);
      }
    }
    return {};
  }
  void forget(std::uint64_t) override {}

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  const Texts& texts_;
  int vocab_;
  std::mt19937 random_;
};

// Requests and the texts of their solo runs.
struct Wanted {
  std::vector<Request> requests;
  std::vector<std::vector<std::int32_t>> alone;
};

struct Counted {
  std::int64_t rounds = 0, accepted = 0, rejected = 0;  // of drafts
  std::int64_t set_aside = 0, cancelled = 0, finished = 0;
};

// Runs the requests in one batch: they join at random steps, a few are cancelled on the way. Each that ends
// by itself has its solo text, each cancelled one the beginning of it. `texts` is what a drafter may look at.
inline void expect_solo_texts(StepModel& model, StateStore& store, SchedulerOptions options,
                              const Wanted& wanted, Texts& texts, unsigned seed, bool cancel,
                              Counted& counted) {
  std::mt19937 random(seed);
  options.clock = [] { return 0.0; };
  Scheduler scheduler = must(Scheduler::create(model, store, std::move(options)));
  Texts out;
  std::vector<Event> events;
  std::size_t next = 0;
  while (next < wanted.requests.size() || !scheduler.idle()) {
    if (next < wanted.requests.size() && (scheduler.idle() || random() % 3 == 0)) {
      const RequestId id = must(scheduler.submit(wanted.requests[next]));
      texts[id] = wanted.requests[next].prompt;
      texts[id].insert(texts[id].end(), wanted.alone[next].begin(), wanted.alone[next].end());
      next++;
    }
    if (cancel && random() % 50 == 0) scheduler.cancel(1 + random() % wanted.requests.size());
    events.clear();
    must(scheduler.step(events));
    for (const Event& e : events) {
      if (e.kind == Event::Kind::kToken) out[e.request].push_back(e.token);
      if (e.kind != Event::Kind::kFinished) continue;
      const std::vector<std::int32_t>&text = out[e.request], &alone = wanted.alone[e.request - 1];
      if (e.reason == FinishReason::kCancelled) {
        counted.cancelled++;
        EXPECT_LE(text.size(), alone.size());
        EXPECT_TRUE(std::equal(text.begin(), text.end(), alone.begin())) << "cancelled request " << e.request;
      } else {
        counted.finished++;
        EXPECT_EQ(text, alone) << "request " << e.request;
      }
    }
  }
  const SchedulerStats& stats = scheduler.stats();
  counted.rounds += stats.drafts.rounds;
  counted.accepted += stats.drafts.accepted;
  counted.rejected += stats.drafts.drafted - stats.drafts.accepted;
  counted.set_aside += stats.set_aside;
}

}  // namespace windrow::testing
