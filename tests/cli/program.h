// Runs the windrow program as a user would and keeps what it says.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/temp_folder.h"

extern char** environ;

namespace windrow::testing {

struct Ended {
  int code = -1;  // the exit code, or 1000 + the signal
  std::string out, err;
};

// Where the standard streams lead: a path; "" for a file of the test's folder, "-" for closed.
struct Streams {
  std::string in, out, err;
  bool ignores_interrupt = false;  // as in the background of a script
};

// What can be read of a descriptor now: up to its end, or until a reader would wait or is refused.
inline std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

// The program started with `input` on stdin, unless `streams` say otherwise.
inline pid_t start_program(const TempFolder& dir, std::vector<std::string> args,
                           const std::string& input = "", const Streams& streams = {}) {
  dir.write("stdin", input);
  args.insert(args.begin(), "windrow");
  std::vector<char*> argv;
  for (std::string& a : args) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const auto stream = [&](int fd, const std::string& to, const char* name, int flags) {
    const std::string path = to.empty() ? dir.path(name) : to;
    if (to == "-") {
      posix_spawn_file_actions_addclose(&files, fd);
    } else {
      posix_spawn_file_actions_addopen(&files, fd, path.c_str(), flags | O_NOCTTY, 0600);
    }
  };
  stream(0, streams.in, "stdin", O_RDONLY);
  stream(1, streams.out, "stdout", O_WRONLY | O_CREAT | O_TRUNC);
  stream(2, streams.err, "stderr", O_WRONLY | O_CREAT | O_TRUNC);
  // However the tests themselves were started.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &interrupt);
  posix_spawnattr_setflags(&attributes, streams.ignores_interrupt ? 0 : POSIX_SPAWN_SETSIGDEF);
  const auto before = signal(SIGINT, streams.ignores_interrupt ? SIG_IGN : SIG_DFL);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, WINDROW_PROGRAM, &files, &attributes, argv.data(), environ);
  signal(SIGINT, before);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw std::runtime_error("posix_spawn " WINDROW_PROGRAM);
  return pid;
}

inline Ended wait_program(const TempFolder& dir, pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) throw std::runtime_error("waitpid");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
          read_whole_file(dir.path("stdout")), read_whole_file(dir.path("stderr"))};
}

// Threads are named where a test is about them: tests run side by side, and barriers between threads that
// share processors take a scheduler's tick each.
inline std::vector<std::string> on_one_thread(std::vector<std::string> args) {
  args.insert(args.end(), {"--threads", "1"});
  return args;
}

inline Ended run_program(std::vector<std::string> args, const std::string& input = "",
                         const Streams& streams = {}) {
  const TempFolder dir;
  return wait_program(dir, start_program(dir, std::move(args), input, streams));
}

// Waits until `test` holds; false after a minute, which no machine needs.
template <class Test>
bool eventually(const Test& test) {
  for (int i = 0; i < 12000; i++) {
    if (test()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// Without taking its exit code: wait_program() still has it.
inline bool has_ended(pid_t pid) {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

// A line of /proc/PID/status; "" when there is none.
inline std::string process_status(pid_t pid, const std::string& key) {
  const std::string all = read_whole_file("/proc/" + std::to_string(pid) + "/status");
  const std::size_t at = all.find("\n" + key + ":\t");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + key.size() + 3;
  return all.substr(begin, all.find('\n', begin) - begin);
}

// Does the process have a handler for SIGINT just now?
inline bool catches_interrupt(pid_t pid) {
  const std::string mask = process_status(pid, "SigCgt");
  return !mask.empty() && (std::stoull(mask, nullptr, 16) & (1ull << (SIGINT - 1))) != 0;
}

}  // namespace windrow::testing
