// windrow: runs sliding-window models over page-ring state. One file per subcommand.
#include <fcntl.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <sstream>

#include "cli/command.h"
#include "cli/output.h"

namespace windrow::cli {
namespace {

constexpr const char* kDescription =
    "Runs sliding-window language models over quantized, windowed state.\n"
    "Exit codes: 0 ok, 1 failure, 2 wrong usage, 130 interrupted.";

// Descriptions broken at spaces: help fits a terminal of 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kColumn); }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text, line;
    std::istringstream words(option->get_description());
    for (std::string word; words >> word;) {
      if (!line.empty() && line.size() + 1 + word.size() > kWidth - kColumn) {
        text += line + "\n";
        line.clear();
      }
      line += (line.empty() ? "" : " ") + word;
    }
    return text + line;
  }

 private:
  static constexpr std::size_t kColumn = 28, kWidth = 80;
};

int fail(const Failure& failure, const std::string& command) {
  std::string line = "windrow: " + one_line(failure.message);
  if (failure.code == kUsage) line += " (see: " + command + " --help)";
  std::fprintf(stderr, "%s\n", line.c_str());
  return failure.code;
}

// The chosen subcommand, one below another, or the program where there is none; and its name.
std::pair<const CLI::App*, std::string> chosen_command(const CLI::App& app) {
  std::pair<const CLI::App*, std::string> found = {&app, "windrow"};
  for (auto below = app.get_subcommands(); !below.empty(); below = below[0]->get_subcommands())
    found = {below[0], found.second + " " + below[0]->get_name()};
  return found;
}

std::string help_text(const CLI::App& app) {
  const auto [chosen, name] = chosen_command(app);
  return chosen == &app ? app.help() : chosen->help(name.substr(0, name.rfind(' ')));
}

int run_program(int argc, char** argv) {
  CLI::App app(kDescription, "windrow");
  app.set_version_flag("--version", "windrow " WINDROW_VERSION);
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  Run run;
  add_generate(app, run);
  add_chat(app, run);
  add_session(app, run);
  add_batch(app, run);
  add_logits(app, run);
  add_plan(app, run);
  add_quality(app, run);
  add_convert(app, run);
  add_bench(app, run);
  add_tokenize(app, run);
  add_detokenize(app, run);
  const auto command = [&] { return chosen_command(app).second; };
  try {
    app.parse(argc, argv);
    return run();
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) {
      return fail({kUsage, explain(e, *chosen_command(app).first, argc, argv)}, command());
    }
    try {
      write_stdout(e.get_name() == "CallForVersion" ? std::string(e.what()) + "\n" : help_text(app));
      flush_stdout();
    } catch (const Failure& failure) {
      return fail(failure, command());
    }
    return kSuccess;
  } catch (const Failure& failure) {
    return fail(failure, command());
  } catch (const std::bad_alloc&) {
    return fail({kFailure, "out of memory"}, command());
  } catch (const std::exception& e) {
    return fail({kFailure, e.what()}, command());
  }
}

}  // namespace
}  // namespace windrow::cli

// A standard stream that was closed must not become the next file that is opened (messages would end up in
// it): its place is taken by one that refuses what the stream is for.
void hold_standard_streams() {
  for (int fd = 0; fd <= 2; fd++) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);  // takes the lowest free number: fd
  }
}

int main(int argc, char** argv) {
  hold_standard_streams();
  // A closed stdout and a file beyond the system's limit are write errors, told and counted as such.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  return windrow::cli::run_program(argc, argv);
}
