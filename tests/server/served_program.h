// ServedProgram: `stemma serve` as a process of its own, on a free port.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace stemma {

class ServedProgram {
 public:
  // `flags` as a person would type them, one word each. `log`: a descriptor that it writes its log
  // to; -1: it goes nowhere.
  explicit ServedProgram(const std::vector<std::string>& flags, int log = -1) {
    std::array<int, 2> out = {};
    if (pipe(out.data()) != 0) return;
    process_ = fork();
    if (process_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(log >= 0 ? log : open("/dev/null", O_WRONLY), STDERR_FILENO);
      std::string program = std::string(STEMMA_BINARY_DIR) + "/stemma";
      std::vector<std::string> words = {program, "serve", "--port", "0"};
      words.insert(words.end(), flags.begin(), flags.end());
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      execv(program.c_str(), arguments.data());
      _exit(127);
    }
    ::close(out[1]);
    read_port(out[0]);
    ::close(out[0]);
  }
  ~ServedProgram() { stop(); }
  ServedProgram(const ServedProgram&) = delete;
  ServedProgram& operator=(const ServedProgram&) = delete;

  // 0: it did not start.
  std::uint16_t port() const { return port_; }

  // Bytes of its memory that are resident now.
  std::int64_t resident_bytes() const {
    std::ifstream status("/proc/" + std::to_string(process_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmRSS:")) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
    }
    return -1;
  }

  void send(int signal) const { kill(process_, signal); }

  // Its exit code, once it has ended in order; if it does not in a minute it is killed.
  int stop() {
    if (process_ <= 0) return exit_code_;
    kill(process_, SIGTERM);
    kill(process_, SIGINT);  // a second signal: whoever still reads is cut off
    pollfd ended = {.fd = static_cast<int>(syscall(SYS_pidfd_open, process_, 0)),
                    .events = POLLIN,
                    .revents = 0};
    if (poll(&ended, 1, 60'000) == 0) kill(process_, SIGKILL);
    ::close(ended.fd);
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return exit_code_;
  }

 private:
  // "stemma: MODEL on http://HOST:PORT".
  void read_port(int out) {
    std::string line;
    char next = 0;
    while (read(out, &next, 1) == 1 && next != '\n') line += next;
    const std::size_t colon = line.rfind(':');
    if (colon == std::string::npos) return;
    port_ = static_cast<std::uint16_t>(std::strtol(line.c_str() + colon + 1, nullptr, 10));
  }

  pid_t process_ = -1;
  std::uint16_t port_ = 0;
  int exit_code_ = -1;
};

}  // namespace stemma
