#include "cli/batch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/json.h"
#include "cli/failure.h"
#include "cli/output.h"

namespace windrow::cli {
namespace {

// Some hundred thousand long requests.
constexpr std::size_t kMaxBatchBytes = std::size_t{1} << 30;

// Ends a text at the first of some strings.
class StopStrings {
 public:
  StopStrings(const Tokenizer& tokenizer, std::vector<std::string> stops)
      : decoder_(tokenizer), stops_(std::move(stops)) {}
  bool operator()(std::span<const std::int32_t> ids) {
    for (; seen_ < ids.size(); seen_++) {
      if (Result<std::string> piece = decoder_.push(ids[seen_]); piece.ok()) text_ += *piece;
    }
    bool found = false;
    for (const std::string& stop : stops_) {
      // What was there before is without a stop: a new one reaches into the new text.
      const std::size_t from = checked_ < stop.size() ? 0 : checked_ - stop.size() + 1;
      found = found || text_.find(stop, from) != std::string::npos;
    }
    checked_ = text_.size();
    return found;
  }

 private:
  Tokenizer::Decoder decoder_;
  std::vector<std::string> stops_;
  std::string text_;
  std::size_t seen_ = 0, checked_ = 0;
};

class LineReader {
 public:
  LineReader(JsonReader& json, const Tokenizer* tokenizer, const ModelInfo& info)
      : json_(json), tokenizer_(tokenizer), info_(info) {}

  void read(BatchLine& line, bool ignore_eos) {
    Request& r = line.request;
    read_prompt(r);
    r.max_tokens = json_.int_or("max_tokens", r.max_tokens, 1, 1 << 30);
    SamplerOptions& s = r.sampling;
    const auto real = [&](const char* key, float& to, double low, double high) {
      to = static_cast<float>(json_.double_or(key, static_cast<double>(to), low, high));
    };
    real("temperature", s.temperature, 0, 100);
    real("top_p", s.top_p, 1e-6, 1);
    real("min_p", s.min_p, 0, 0.999999);
    real("repetition_penalty", s.repetition_penalty, 0.01, 100);
    s.top_k = json_.int_or("top_k", s.top_k, 0, 1 << 30);
    if (json_.has("seed")) s.seed = static_cast<std::uint64_t>(json_.int_or("seed", 0, 0, 0x7fffffff));
    r.priority = json_.int_or("priority", 0, -1000, 1000);
    r.logprobs = json_.int_or("logprobs", -1, 0, 1000);
    if (!ignore_eos) r.stop_ids = info_.eos_ids;
    if (json_.has("stop")) line.stops = json_.string_list("stop");
    if (line.stops.empty()) return;
    if (tokenizer_ == nullptr)
      return json_.fail("stop", "needs a tokenizer, and the model's folder has none");
    for (const std::string& stop : line.stops) {
      if (stop.empty()) return json_.fail("stop", "holds an empty text");
    }
    auto stops = std::make_shared<StopStrings>(*tokenizer_, line.stops);
    r.stop = [stops](std::span<const std::int32_t> ids) { return (*stops)(ids); };
  }

 private:
  void read_prompt(Request& r) {
    const bool text = json_.has("prompt"), ids = json_.has("ids");
    if (text == ids)
      return json_.fail("prompt", text ? "and \"ids\" are both given" : "is missing, and so is \"ids\"");
    if (ids) {
      r.prompt = json_.int_list("ids", 0, info_.vocab_size - 1);
      return;
    }
    if (tokenizer_ == nullptr)
      return json_.fail("prompt", "needs a tokenizer, and the model's folder has none");
    Result<std::vector<std::int32_t>> encoded = tokenizer_->encode(json_.require_string("prompt"));
    if (!encoded.ok()) return json_.fail("prompt", encoded.status().message());
    r.prompt = std::move(*encoded);
  }

  JsonReader& json_;
  const Tokenizer* tokenizer_;
  const ModelInfo& info_;
};

}  // namespace

std::vector<BatchLine> read_batch(const std::string& path, const Request& defaults, const ModelInfo& info,
                                  const Tokenizer* tokenizer, bool ignore_eos) {
  const std::string text = read_input(path, kMaxBatchBytes);
  std::vector<BatchLine> lines;
  std::size_t begin = 0;
  for (int number = 1; begin < text.size(); number++) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view content = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    BatchLine line{.number = number, .id = number, .error = {}, .request = defaults, .stops = {}};
    const std::string name = fmt::format("line {}", number);
    const Result<Json> json = parse_json(content, name, {.max_bytes = kMaxBatchBytes});
    if (!json.ok()) {
      line.error = json.status().message();
    } else {
      Status error;
      JsonReader reader(*json, name, error);
      if (const Json* id = reader.find("id"); id != nullptr && error.ok())
        line.id = nlohmann::ordered_json::parse(id->dump());
      LineReader(reader, tokenizer, info).read(line, ignore_eos);
      line.error = error.message();
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

BatchOutput::BatchOutput(const std::string& path) : path_(path) {
  const auto refuse = [&](const char* what) {
    throw Failure{kFailure, fmt::format("{}: {}: {}", path_, what, std::strerror(errno))};
  };
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0) refuse("cannot open");
  struct stat facts {};
  if (fstat(fd_, &facts) != 0) refuse("cannot look at it");
  if (!S_ISREG(facts.st_mode)) throw Failure{kFailure, path_ + ": is no regular file"};
  const std::string text = read_input(path, std::size_t{1} << 32);
  std::size_t whole = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', whole)) {
    const Result<Json> json =
        parse_json(std::string_view(text).substr(whole, end - whole), path, {.max_bytes = text.size() + 1});
    const Json* number =
        json.ok() && json->is_object() && json->contains("line") ? &(*json)["line"] : nullptr;
    if (number == nullptr || !number->is_number_integer()) {
      throw Failure{
          kFailure,
          fmt::format("{}: byte {}: not a result of windrow batch; another file is needed", path_, whole)};
    }
    done_.insert(number->get<int>());
    whole = end + 1;
  }
  if (ftruncate(fd_, static_cast<off_t>(whole)) != 0) refuse("cannot cut a torn line off");
  if (lseek(fd_, 0, SEEK_END) < 0) refuse("cannot append");
}

BatchOutput::~BatchOutput() {
  if (fd_ >= 0) close(fd_);
}

void BatchOutput::write(const nlohmann::ordered_json& result) {
  const std::string line =
      result.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Failure{kFailure, fmt::format("{}: {}", path_, std::strerror(errno))};
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace windrow::cli
