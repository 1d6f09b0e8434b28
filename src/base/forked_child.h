// A child of fork() that does something and ends: what of this process is of use there, and harm.
//
// Thread:     tests.
// Memory:     none.
// Cost:       a fork.
// Not here:   programs that are run (store/child_process).
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace stemma {

inline constexpr unsigned kForkedChildSeconds = 20;

// What a child answers with, from 0 to 255, who does this; -1: it hung or died.
template <typename Work>
int in_forked_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kForkedChildSeconds);
    ::_exit(work());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Does this while a child lives, which has open what this process had then.
template <typename Work>
void beside_child(const Work& work) {
  std::array<int, 2> ends = {};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {  // lives until the parent has closed its end
    ::close(ends[1]);
    ::alarm(kForkedChildSeconds);
    char byte = 0;
    ::_exit(static_cast<int>(::read(ends[0], &byte, 1)));
  }
  work();
  ::close(ends[1]);
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace stemma
