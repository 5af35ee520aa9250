// Speed of the tokenizer: MB/s of encode, tokens/s of decode and of the incremental decoder, over a
// megabyte of the storyteller's golden texts, repeated.
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "windrow/tokenizer.h"

namespace {

// The best of five runs, in seconds.
template <typename F>
double seconds_of(F f) {
  double best = 1e9;
  for (int i = 0; i < 5; i++) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

int run(const char* name, const std::string& path, const std::string& text) {
  const auto tokenizer = windrow::Tokenizer::load(path);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.status().message());
    return 1;
  }
  const auto ids = tokenizer->encode(text);
  if (!ids.ok()) return 1;
  const double encode = seconds_of([&] { (void)tokenizer->encode(text); });
  const double decode = seconds_of([&] { (void)tokenizer->decode(*ids); });
  const double stream = seconds_of([&] {
    windrow::Tokenizer::Decoder decoder(*tokenizer);
    for (const auto id : *ids) (void)decoder.push(id);
    (void)decoder.finish();
  });
  const double mega_ids = static_cast<double>(ids->size()) / 1e6;
  fmt::print("{:12} {:7.2f} MB/s encode  {:7.2f} M tokens/s decode  {:7.2f} M tokens/s stream  ({} tokens)\n",
             name, static_cast<double>(text.size()) / 1e6 / encode, mega_ids / decode, mega_ids / stream,
             ids->size());
  return 0;
}

}  // namespace

int main() {
  const std::string models = WINDROW_MODELS;
  std::ifstream file(models + "/storyteller/golden.json");
  std::string story;
  for (const auto& text : nlohmann::json::parse(file).at("greedy")) story += text.get<std::string>() + "\n\n";
  std::string text;
  while (text.size() < 1'000'000) text += story;
  const std::string llama3 = models + "/../tests/data/tokenizers/llama3-style.json";
  const int failed = run("storyteller", models + "/storyteller/tokenizer.json", text);
  return failed + run("llama3-style", llama3, text);
}
