// Runs the windrow program as a user would and keeps what it says.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "support/temp_folder.h"

extern char** environ;

namespace windrow::testing {

struct Ended {
  int code = -1;  // the exit code, or 1000 + the signal
  std::string out, err;
};

// The program started with stdin, stdout and stderr on files of `dir`.
inline pid_t start_program(const TempFolder& dir, std::vector<std::string> args,
                           const std::string& input = "", const std::string& out = "") {
  dir.write("stdin", input);
  args.insert(args.begin(), "windrow");
  std::vector<char*> argv;
  for (std::string& a : args) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const std::string in_path = dir.path("stdin"), err_path = dir.path("stderr"),
                    out_path = out.empty() ? dir.path("stdout") : out;
  posix_spawn_file_actions_addopen(&files, 0, in_path.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&files, 2, err_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, WINDROW_PROGRAM, &files, nullptr, argv.data(), environ);
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

inline Ended run_program(std::vector<std::string> args, const std::string& input = "") {
  const TempFolder dir;
  return wait_program(dir, start_program(dir, std::move(args), input));
}

}  // namespace windrow::testing
