// Streams, files and signals that do not behave.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "cli/program.h"
#include "support/sanitized.h"

namespace windrow {
namespace {

using namespace windrow::testing;  // NOLINT

const std::string kStoryteller = WINDROW_MODELS "/storyteller";
const std::string kTiny = WINDROW_TEST_DATA "/hf/gemma3";

// A pipe with a name, held open at both ends, so that nobody who opens it waits.
class Fifo {
 public:
  explicit Fifo(const std::string& path) {
    if (mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
    fd_ = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  }
  ~Fifo() { ::close(fd_); }
  // Until a writer would wait.
  void fill() const {
    const std::string bytes(4096, '#');
    while (::write(fd_, bytes.data(), bytes.size()) > 0) continue;
  }
  std::string drain() const { return read_all(fd_); }

 private:
  int fd_;
};

// A limit of the system in force while a program is started.
class Limited {
 public:
  Limited(int resource, rlim_t limit) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit small = {limit, before_.rlim_max};
    setrlimit(resource_, &small);
  }
  ~Limited() { setrlimit(resource_, &before_); }

 private:
  int resource_;
  rlimit before_ = {};
};

TEST(CliStreams, APipeInPlaceOfAModelFileIsRefusedWithoutWaiting) {
  for (const char* name : {"tokenizer.json", "config.json", "model.safetensors"}) {
    const TempFolder dir;
    for (const char* file : {"tokenizer.json", "config.json", "model.safetensors"}) {
      if (std::string(file) != name) std::filesystem::copy_file(kStoryteller + "/" + file, dir.path(file));
    }
    ASSERT_EQ(mkfifo(dir.path(name).c_str(), 0600), 0);  // nobody will ever write to it
    const TempFolder streams;
    const pid_t pid = start_program(streams, {"generate", "--model", dir.path(), "--prompt", "a"});
    const bool ended = eventually([&] { return has_ended(pid); });
    if (!ended) kill(pid, SIGKILL);
    const Ended end = wait_program(streams, pid);
    EXPECT_EQ(end.code, 1) << name;
    EXPECT_EQ(end.err, "windrow: " + dir.path(name) + ": is a pipe, expected a file\n");
  }
}

TEST(CliStreams, EverySubcommandTellsThatStdoutIsFullOrClosed) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"generate", "--model", kStoryteller, "--prompt", "a", "--max-tokens", "3"},
           {"generate", "--model", kStoryteller, "--prompt", "a", "--max-tokens", "0", "--echo"},
           {"generate", "--model", kStoryteller, "--prompt", "a", "--max-tokens", "3", "--json"},
           {"plan", "--model", kTiny, "--context", "8"},
           {"tokenize", "--model", kStoryteller, "--text", "a"},
           {"detokenize", "--model", kStoryteller, "--ids", "5"},
           {"generate", "--help"},
           {"--version"}}) {
    const Ended full = run_program(args, "", {.in = "", .out = "/dev/full", .err = ""});
    EXPECT_EQ(full.code, 1) << args[0];
    EXPECT_EQ(full.err, "windrow: stdout: No space left on device\n");
    const Ended closed = run_program(args, "", {.in = "", .out = "-", .err = ""});
    EXPECT_EQ(closed.code, 1) << args[0];
    EXPECT_EQ(closed.err, "windrow: stdout: Bad file descriptor\n");
  }
}

TEST(CliStreams, MessagesForAClosedStderrDoNotEndInTheOutput) {
  const TempFolder dir;
  const std::vector<std::string> args = {"logits", "--model",   kTiny, "--ids",
                                         "1,2,3",  "--threads", "1",   "--out"};
  const auto run = [&](const std::string& out, const Streams& streams) {
    std::vector<std::string> all = args;
    all.push_back(out);
    return run_program(all, "", streams).code;
  };
  EXPECT_EQ(run(dir.path("a"), {}), 0);
  EXPECT_EQ(run(dir.path("b"), {.in = "-", .out = "-", .err = "-"}), 0);
  EXPECT_EQ(read_whole_file(dir.path("a")), read_whole_file(dir.path("b")));
  const Ended end = run_program({"tokenize", "--model", kStoryteller}, "", {.in = "-", .out = "", .err = ""});
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.err, "windrow: stdin: Bad file descriptor\n");
}

TEST(CliStreams, AnOutputThatDoesNotFitLeavesNothing) {
  const TempFolder dir;
  const TempFolder streams;
  pid_t pid = -1;
  {
    const Limited limited(RLIMIT_FSIZE, 4096);
    pid = start_program(streams, {"logits", "--model", kTiny, "--ids", "1,2,3,4,5,6,7,8", "--out",
                                  dir.path("logits"), "--threads", "1"});
  }
  const Ended end = wait_program(streams, pid);
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.err, "windrow: " + dir.path("logits") + ": cannot write: File too large\n");
  EXPECT_EQ(dir.entries(), 0);
}

TEST(CliStreams, MemoryThatEndsIsSaidInWords) {
  if (kSanitized) GTEST_SKIP() << "sanitizers map more than any limit";
  const TempFolder dir;
  pid_t pid = -1;
  {
    const Limited limited(RLIMIT_AS, rlim_t{100} << 20);
    pid = start_program(dir, {"tokenize", "--model", kStoryteller}, "",
                        {.in = "/dev/zero", .out = "", .err = ""});
  }
  const Ended end = wait_program(dir, pid);
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.err, "windrow: out of memory\n");
}

TEST(CliStreams, DevicesAndLinksToThemAreNoPlaceForAFile) {
  const TempFolder dir;
  std::filesystem::create_symlink("/dev/full", dir.path("full"));
  std::filesystem::create_symlink("/proc/self/fd/1", dir.path("out"));  // what /dev/stdout is
  const auto err = [&](const std::string& out) {
    const Ended end = run_program({"logits", "--model", kTiny, "--ids", "1", "--out", out, "--threads", "1"});
    EXPECT_EQ(end.code, 1);
    return end.err;
  };
  EXPECT_EQ(err("/dev/full"), "windrow: /dev/full: is a device, expected a file or a free name\n");
  EXPECT_EQ(err(dir.path("full")),
            "windrow: " + dir.path("full") + ": is a link to a device, expected a file or a free name\n");
  EXPECT_EQ(err(dir.path("out")), "windrow: " + dir.path("out") +
                                      ": is a link to an open stream, expected a file or a free name\n");
  EXPECT_TRUE(std::filesystem::is_symlink(dir.path("out")));
}

TEST(CliStreams, WhatAPromptFileHoldsIsNoWrongUsage) {
  const TempFolder dir;
  const auto run = [&](const std::string& file, const std::string& input) {
    return run_program({"generate", "--model", kStoryteller, "--prompt-file", file, "--threads", "1"}, input);
  };
  const std::string latin1 = dir.write("latin1", "caf\xe9"), empty = dir.write("empty", "");
  for (const auto& [end, err] :
       {std::pair(run(latin1, ""), latin1 + ": text is not UTF-8 at byte 3"),
        std::pair(run(empty, ""), empty + ": is empty"),
        std::pair(run("-", ""), std::string("stdin: is empty")),
        std::pair(run("-", "\xff"), std::string("stdin: text is not UTF-8 at byte 0")),
        std::pair(run(dir.path(), ""), dir.path() + ": Is a directory"),
        std::pair(run("/dev/zero", ""), std::string("/dev/zero: more than 67108864 bytes"))}) {
    EXPECT_EQ(end.code, 1);
    EXPECT_EQ(end.err, "windrow: " + err + "\n");
  }
}

// Generation that waits in a write: nobody reads its stdout.
struct Waiting {
  TempFolder dir;
  Fifo fifo{dir.path("fifo")};
  pid_t pid = -1;

  explicit Waiting(bool ignores_interrupt = false) {
    fifo.fill();
    pid = start_program(
        dir,
        {"generate", "--model", kTiny, "--ids", "1,2", "--max-tokens", "400", "--ignore-eos", "--threads",
         "1"},
        "", {.in = "", .out = dir.path("fifo"), .err = "", .ignores_interrupt = ignores_interrupt});
    EXPECT_TRUE(eventually([&] { return ignores_interrupt || catches_interrupt(pid); }));
    EXPECT_TRUE(eventually([&] { return process_status(pid, "State").starts_with("S"); }));
  }
};

TEST(CliInterrupt, TheFirstEndsWellThoughTheReaderIsSlow) {
  Waiting w;
  kill(w.pid, SIGINT);
  ASSERT_TRUE(eventually([&] { return !catches_interrupt(w.pid); }));
  std::string written = w.fifo.drain();
  const Ended end = wait_program(w.dir, w.pid);
  written += w.fifo.drain();
  EXPECT_EQ(end.code, 130);
  EXPECT_EQ(written.back(), '\n');
  EXPECT_NE(end.err.find("end: cancelled"), std::string::npos) << end.err;
}

TEST(CliInterrupt, TheSecondEndsAtOnce) {
  Waiting w;
  kill(w.pid, SIGINT);
  ASSERT_TRUE(eventually([&] { return !catches_interrupt(w.pid); }));
  EXPECT_FALSE(has_ended(w.pid)) << "the first one was the end already";
  kill(w.pid, SIGINT);
  EXPECT_EQ(wait_program(w.dir, w.pid).code, 1000 + SIGINT);
}

TEST(CliInterrupt, AProgramInTheBackgroundOfAScriptIgnoresIt) {
  Waiting w(true);
  kill(w.pid, SIGINT);
  EXPECT_TRUE(eventually([&] { return w.fifo.drain(), has_ended(w.pid); }));
  EXPECT_EQ(wait_program(w.dir, w.pid).code, 0);
}

TEST(CliInterrupt, LogitsLeaveNothing) {
  const TempFolder dir, streams;
  std::string text;
  for (int i = 0; i < 200; i++) text += "It was a dark and stormy night. ";
  const pid_t pid =
      start_program(streams, {"logits", "--model", kStoryteller, "--prompt", text, "--prefill-chunk", "1",
                              "--out", dir.path("logits"), "--threads", "1"});
  EXPECT_TRUE(eventually([&] { return dir.entries() > 0; }));
  kill(pid, SIGINT);
  const Ended end = wait_program(streams, pid);
  EXPECT_EQ(end.code, 130);
  EXPECT_EQ(end.err, "windrow: interrupted, " + dir.path("logits") + " is not written\n");
  EXPECT_EQ(dir.entries(), 0);
}

}  // namespace
}  // namespace windrow
