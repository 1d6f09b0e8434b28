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

}  // namespace stemma
