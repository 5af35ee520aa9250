// The files of `windrow batch`: requests in, one JSON object a line, results out as they finish.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "windrow/model.h"
#include "windrow/scheduler.h"
#include "windrow/tokenizer.h"

namespace windrow::cli {

// One line of the input.
struct BatchLine {
  int number = 0;             // from 1
  nlohmann::ordered_json id;  // what the line calls itself; null: its number
  std::string error;          // of a line that asks for nothing that can be done
  Request request;
  std::vector<std::string> stops;  // stop strings; request.stop looks for them
};

// All lines of a file. A line that is wrong has its error; the file itself must be UTF-8 and below a limit.
// `defaults` are the flags' options for lines that do not say otherwise.
std::vector<BatchLine> read_batch(const std::string& path, const Request& defaults, const ModelInfo& info,
                                  const Tokenizer* tokenizer, bool ignore_eos);

// Results that a run before this one finished.
class BatchOutput {
 public:
  // Opens or creates `path` for appending. Whole lines of it say which numbers are done; what an interrupted
  // run left of a line is cut off.
  explicit BatchOutput(const std::string& path);
  ~BatchOutput();
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;

  bool done(int number) const { return done_.contains(number); }
  std::size_t count() const { return done_.size(); }
  // Appends one line in one write.
  void write(const nlohmann::ordered_json& result);

 private:
  std::string path_;
  int fd_ = -1;
  std::set<int> done_;
};

}  // namespace windrow::cli
