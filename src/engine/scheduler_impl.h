// What a Scheduler holds. scheduler.cc decides who has a row, scheduler_step.cc runs a step.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/draft_length.h"
#include "engine/sequence.h"
#include "windrow/scheduler.h"

namespace windrow {

struct Scheduler::Impl {
  struct Entry {
    RequestId id = 0;
    Sequence sequence;
    std::int64_t positions = 0;  // that its row may come to hold, in whole pages
    double waiting_since = 0;
    double deadline = 0;  // infinite: none
    bool cancelled = false;
    bool admitted = false;     // has or had a row
    double admitted_rank = 0;  // priority and age at which it got its row, and so whom it yields to
    Row row = {};              // valid: it runs
    std::optional<RowRecords> records = {};  // of a row that was set aside
    DraftLength draft_length = {};
    // Set while a step is open: it ends when the step does.
    std::optional<FinishReason> ended = {};
    Status error = {};
  };
  // What is left of a request whose row is kept.
  struct Kept {
    Row row = {};
    std::optional<RowRecords> records = {};  // where it was set aside
    std::int64_t positions = 0;              // that the row counts for
  };
  // One row's part of a step.
  struct Part {
    Entry* entry = nullptr;
    int fresh = 0;        // tokens of the text that are fed
    bool wanted = false;  // the logits of the last of them, and of the draft
    Draft draft = {};
    bool asked = false;             // for a draft
    double spent = 0;               // for it, in tokens
    std::vector<int> parents = {};  // of all its tokens, where the draft is a tree
    int first_logits = 0;           // of its last fresh token, in wanted logits
    std::vector<int> path = {};     // indices of its tokens that are kept
    int accepted = 0;
  };

  StepModel& model;
  StateStore& store;
  SchedulerOptions options;
  std::map<RequestId, std::unique_ptr<Entry>> entries = {};
  std::map<RequestId, Kept> kept = {};
  std::vector<Entry*> running = {}, waiting = {};  // in order of admission; of submission
  std::vector<Event> early = {};                   // that happened between two steps
  std::int64_t positions = 0;                      // of the running and the kept ones
  RequestId next_id = 1;
  std::size_t turn = 0;  // whose prompt goes first
  SchedulerStats stats = {};
  StepCost cost = {};
  std::vector<float> logits = {};

  double now() const { return options.clock(); }
  std::int64_t capacity() const;
  double rank(const Entry& e, double time) const;  // of a waiting one: higher goes first
  bool fits(const Entry& e) const;

  Status check_row(const Request& r, Row& row) const;
  Result<RequestId> submit(Request request, Row* row);
  void finish(Entry* e, FinishReason reason, std::vector<Event>& events, Status status = {});
  void end_expired(double time, std::vector<Event>& events);
  Status admit(std::vector<Event>& events);
  Status open(Entry* e, double rank_now, std::vector<Event>& events);
  void start(Entry* e, double rank_now, std::vector<Event>& events);
  bool make_room(const Entry& e, std::vector<Event>& events);
  bool set_aside(Entry* e, std::vector<Event>& events);

  std::vector<Part> choose_parts();
  void add_drafts(std::vector<Part>& parts, int& budget);
  Status run(std::vector<Part>& parts, std::vector<Event>& events);
  void count_prefill(const Part& part, std::vector<Event>& events);
  void walk(Part& part, int rows, std::vector<Event>& events);  // of a step of so many
  bool emit(Part& part, int node, std::vector<Event>& events, std::int32_t& token);
};

}  // namespace windrow
