#include "store/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <vector>

namespace stemma {

namespace {

constexpr int kCannotRun = 127;

// In the child, between fork and exec: only calls that are safe there.
[[noreturn]] void become(char* const* words, int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execvp(words[0], words);
  ::_exit(kCannotRun);
}

}  // namespace

Result<ChildProcess> ChildProcess::start(std::span<const std::string> words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  int ends[2] = {};
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error{ErrorCode::kIo, "pipe", errno};
  const pid_t process = ::fork();
  if (process == 0) become(pointers.data(), ends[1]);
  ::close(ends[1]);
  if (process < 0) {
    ::close(ends[0]);
    return Error{ErrorCode::kIo, "fork", errno};
  }
  return ChildProcess(process, ends[0]);
}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(process_, other.process_);
  std::swap(output_, other.output_);
  std::swap(printed_, other.printed_);
  std::swap(searched_, other.searched_);
  return *this;
}

ChildProcess::~ChildProcess() {
  kill();
  if (output_ >= 0) ::close(output_);
}

Result<bool> ChildProcess::read_more(std::int64_t deadline_us) {
  const std::int64_t left_ms = (deadline_us - clock_.now_us() + 999) / 1000;
  pollfd entry = {output_, POLLIN, 0};
  if (left_ms <= 0 || ::poll(&entry, 1, static_cast<int>(left_ms)) == 0) {
    return Error{ErrorCode::kDeadline, "the program printed: " + printed_};
  }
  std::array<char, 4096> piece;
  const ssize_t bytes = ::read(output_, piece.data(), piece.size());
  if (bytes > 0) printed_.append(piece.data(), static_cast<std::size_t>(bytes));
  return bytes > 0 || (bytes < 0 && errno == EINTR);
}

Status ChildProcess::wait_for(std::string_view part, std::int64_t limit_us) {
  const std::int64_t deadline_us = clock_.now_us() + limit_us;
  while (true) {
    const std::size_t at = printed_.find(part, searched_);
    if (at != std::string::npos) {
      searched_ = at + part.size();
      return {};
    }
    STEMMA_ASSIGN_OR_RETURN(const bool more, read_more(deadline_us));
    if (!more) return Error{ErrorCode::kNotFound, "the program ended: " + printed_};
  }
}

Result<std::string> ChildProcess::finish(std::int64_t limit_us) {
  const std::int64_t deadline_us = clock_.now_us() + limit_us;
  while (true) {
    STEMMA_ASSIGN_OR_RETURN(const bool more, read_more(deadline_us));
    if (!more) break;
  }
  const int status = reap();
  if (status == 0) return printed_;
  return Error{ErrorCode::kIo, "exit " + std::to_string(status) + ": " + printed_};
}

void ChildProcess::kill() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  static_cast<void>(reap());
}

void ChildProcess::freeze() {
  ::kill(process_, SIGSTOP);
}

void ChildProcess::thaw() {
  ::kill(process_, SIGCONT);
}

int ChildProcess::reap() {
  int status = 0;
  while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Result<std::string> run_program(std::span<const std::string> words, std::int64_t limit_us) {
  STEMMA_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::start(words));
  return process.finish(limit_us);
}

}  // namespace stemma
