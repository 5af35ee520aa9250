// What a person at a terminal sees: the progress bar, its end, and how to be without it.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "cli/program.h"
#include "support/sanitized.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

const std::string kStoryteller = WINDROW_MODELS "/storyteller";
constexpr const char* kClearLine = "\r\x1b[2K";

class Terminal {
 public:
  Terminal() : fd_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (fd_ < 0 || grantpt(fd_) != 0 || unlockpt(fd_) != 0) throw std::runtime_error("posix_openpt");
  }
  ~Terminal() { ::close(fd_); }
  std::string path() const { return ptsname(fd_); }
  // All that is written to it, until the last program closes it.
  std::string read_all() const { return testing::read_all(fd_); }

 private:
  int fd_;
};

// A long prompt in one-token steps, stopped for a moment in prefill: however fast the machine, it takes long
// enough for a bar.
std::string long_prompt(const std::vector<std::string>& more, bool stdout_too = false) {
  std::string text = "Begin.";
  for (int i = kSanitized ? 8 : 60; i > 0; i--)
    text += " It was a dark and stormy night, and the pirate looked at the map.";
  const TempFolder dir;
  std::vector<std::string> args = {"generate",
                                   "--model",
                                   kStoryteller,
                                   "--prompt-file",
                                   dir.write("p", text + "\nEnd."),
                                   "--max-tokens",
                                   "2",
                                   "--prefill-chunk",
                                   "1"};
  args.insert(args.end(), more.begin(), more.end());
  const Terminal terminal;
  const pid_t pid =
      start_program(dir, on_one_thread(args), "",
                    {.in = "", .out = stdout_too ? terminal.path() : "", .err = terminal.path()});
  EXPECT_TRUE(eventually([&] { return catches_interrupt(pid); }));
  kill(pid, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  kill(pid, SIGCONT);
  const std::string seen = terminal.read_all();
  const Ended end = wait_program(dir, pid);
  EXPECT_EQ(end.code, 0);
  EXPECT_EQ(end.out.find('\x1b'), std::string::npos);
  return seen;
}

class CliTerminal : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("NO_COLOR"); }
  void TearDown() override { unsetenv("NO_COLOR"); }
};

TEST_F(CliTerminal, ABarShowsALongPrefillAndVanishesBeforeTheText) {
  const std::string seen = long_prompt({});
  EXPECT_NE(seen.find("\rprompt █"), std::string::npos) << seen;
  const std::size_t cleared = seen.rfind(kClearLine);
  ASSERT_NE(cleared, std::string::npos) << seen;
  EXPECT_EQ(seen.find("\rprompt ", cleared), std::string::npos) << seen;
  EXPECT_NE(seen.find("\x1b[1mwindrow:\x1b[0m", cleared), std::string::npos) << seen;
}

TEST_F(CliTerminal, TheBarDoesNotWipeTheEchoedPrompt) {
  const std::string seen = long_prompt({"--echo", "--quiet"}, true), bar = long_prompt({"--echo"}, true);
  EXPECT_EQ(seen.find(kClearLine), std::string::npos);
  const std::size_t cleared = bar.rfind(kClearLine);
  ASSERT_NE(cleared, std::string::npos) << bar;
  EXPECT_EQ(bar.find("Begin."), bar.find("Begin.", cleared));
  EXPECT_NE(bar.find("\nEnd.", cleared), std::string::npos);
}

TEST_F(CliTerminal, NoColorMeansNoBarEither) {
  setenv("NO_COLOR", "1", 1);
  const std::string seen = long_prompt({});
  EXPECT_EQ(seen.find('\x1b'), std::string::npos) << seen;
  EXPECT_EQ(seen.find("█"), std::string::npos) << seen;
  EXPECT_NE(seen.find("windrow: "), std::string::npos) << seen;
  setenv("NO_COLOR", "", 1);  // as no-color.org has it: an empty value does not count
  EXPECT_NE(long_prompt({}).find('\x1b'), std::string::npos);
}

TEST_F(CliTerminal, QuietIsQuiet) { EXPECT_EQ(long_prompt({"--quiet"}), ""); }

}  // namespace
}  // namespace windrow
