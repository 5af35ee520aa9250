// windrow plan: exactly the bytes that a state will take, without loading the model.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/model_flags.h"
#include "cli/output.h"
#include "windrow/attention.h"

namespace windrow::cli {
namespace {

struct PlanFlags {
  RunFlags run;
  KvFlags kv;
  int context = 0;
  int rows = 1;
  bool json = false;
};

std::string table(const StatePlan& plan) {
  constexpr const char* kRow = "{:<24} {:>8} {:>9} {:>9} {:>10} {:>7} {:>15}\n";
  std::string text = fmt::format(kRow, "layers", "window", "keys", "values", "page", "pages", "bytes");
  for (int i = 0; i < plan.group_count(); i++) {
    const AttentionGroup& g = plan.group(i);
    const GroupBytes& b = plan.group_bytes(i);
    text +=
        fmt::format(kRow, layers_text(g.layers), g.window == kFullWindow ? "full" : std::to_string(g.window),
                    g.keys.to_string(), g.values.to_string(), b.page, b.pages, b.total);
  }
  text += fmt::format(kRow, "all", "", "", "", "", "", plan.bytes());
  const Limits& l = plan.limits();
  text += fmt::format("\n{} row{} of {} tokens, steps of {} tokens, pages of {} tokens: {}\n", l.rows,
                      l.rows == 1 ? "" : "s", l.tokens, l.step_tokens, plan.page_tokens(),
                      human_bytes(plan.bytes()));
  return text;
}

// The kernel that serves most kinds of reads of a group, and what is slower.
std::string kernels_text(const StatePlan& plan, const AttentionKernels& kernels) {
  std::string text;
  for (int g = 0; g < plan.group_count(); g++) {
    const std::string layers = layers_text(plan.group(g).layers);
    text += fmt::format("attention of layers {}: {}\n", layers, kernels.kernel(g, ReadKind::kDecode).name);
    std::vector<std::pair<std::string, std::string>> slow;  // reason, kinds
    for (const ReadKind kind : kReadKinds) {
      const std::string reason = kernels.kernel(g, kind).slow;
      if (reason.empty()) continue;
      if (!slow.empty() && slow.back().first == reason) {
        slow.back().second += fmt::format(", {}", to_string(kind));
      } else {
        slow.emplace_back(reason, to_string(kind));
      }
    }
    for (const auto& [reason, kinds] : slow) text += fmt::format("  slower: {}: {}\n", kinds, reason);
  }
  return text;
}

std::string to_json(const StatePlan& plan, const AttentionKernels& kernels) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(plan.to_json());
  nlohmann::ordered_json& attention = json["attention"] = nlohmann::ordered_json::array();
  for (int g = 0; g < plan.group_count(); g++) {
    nlohmann::ordered_json kinds;
    for (const ReadKind kind : kReadKinds) {
      const AttentionKernel kernel = kernels.kernel(g, kind);
      kinds[to_string(kind)] = {{"kernel", kernel.name}, {"slow", kernel.slow}};
    }
    attention.push_back({{"layers", plan.group(g).layers}, {"kernels", kinds}});
  }
  return json.dump();
}

int plan(const PlanFlags& flags) {
  const ModelInfo info = need(read_model_info(flags.run.model));
  const KvChoice kv = flags.kv.choose(info);
  if (flags.context > info.max_positions) {
    usage_error("--context",
                fmt::format("{} tokens, the model was made for {}", flags.context, info.max_positions));
  }
  const Limits limits{.rows = flags.rows,
                      .tokens = flags.context,
                      .step_tokens = std::min(flags.run.prefill_chunk, flags.context),
                      .rollback = 0,
                      .total_tokens = 0};
  const StatePlan state = need(plan_state(info, kv, limits));
  const AttentionKernels kernels = need(AttentionKernels::select(state));
  write_stdout(flags.json ? to_json(state, kernels) + "\n" : table(state) + kernels_text(state, kernels));
  flush_stdout();
  return kSuccess;
}

}  // namespace

void add_plan(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("plan", "print exactly what will be allocated for a model's state");
  auto flags = std::make_shared<PlanFlags>();
  flags->run.add_model(*sub);
  int_flag(*sub, "--context", &flags->context, 1, 1 << 30, "tokens of a row", "")->required();
  int_flag(*sub, "--rows", &flags->rows, 1, 1 << 16, "rows that live at once");
  flags->kv.add(*sub);
  int_flag(*sub, "--prefill-chunk", &flags->run.prefill_chunk, 1, 1 << 16,
           "new tokens of one step over all rows; the context where that is shorter");
  bool_flag(*sub, "--json", &flags->json, "print a JSON object");
  sub->callback([flags, &run] { run = [flags] { return plan(*flags); }; });
}

}  // namespace windrow::cli
