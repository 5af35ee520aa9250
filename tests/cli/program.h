// Runs the windrow program as a user would and keeps what it says.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

extern char** environ;

namespace windrow::testing {

// A folder that goes with the test.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "windrow-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline void write_all(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct Ended {
  int code = -1;  // the exit code, or 1000 + the signal
  std::string out, err;
};

// The program started with stdin, stdout and stderr on files of `dir`.
inline pid_t start_program(const TempDir& dir, std::vector<std::string> args, const std::string& input = "",
                           const std::string& out = "") {
  write_all(dir / "stdin", input);
  args.insert(args.begin(), "windrow");
  std::vector<char*> argv;
  for (std::string& a : args) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const std::string in_path = dir / "stdin", err_path = dir / "stderr",
                    out_path = out.empty() ? dir / "stdout" : out;
  posix_spawn_file_actions_addopen(&files, 0, in_path.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&files, 2, err_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, WINDROW_PROGRAM, &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw std::runtime_error("posix_spawn " WINDROW_PROGRAM);
  return pid;
}

inline Ended wait_program(const TempDir& dir, pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) throw std::runtime_error("waitpid");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), read_all(dir / "stdout"),
          read_all(dir / "stderr")};
}

inline Ended run_program(std::vector<std::string> args, const std::string& input = "") {
  const TempDir dir;
  return wait_program(dir, start_program(dir, std::move(args), input));
}

}  // namespace windrow::testing
