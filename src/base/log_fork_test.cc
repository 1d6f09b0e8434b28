// Log: a child of fork() writes its lines, whatever other threads of its parent were writing.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "base/forked_child.h"
#include "base/stderr_log.h"
#include "stemma/log.h"

namespace stemma {
namespace {

class LogForks : public testing::Test {
 protected:
  void TearDown() override { set_log_sink({}); }

  // What a child answers with that begins while another thread is in a sink.
  template <typename Work>
  int beside_a_line(const Work& work) {
    std::latch in_sink(1);
    std::latch forked(1);
    set_log_sink([&, parent = ::getpid()](LogLevel, std::string_view line) {
      lines_.emplace_back(line);
      if (::getpid() != parent) return;
      in_sink.count_down();
      forked.wait();
    });
    std::jthread logger([] { STEMMA_LOG(kInfo, "parent"); });
    in_sink.wait();
    const int answer = in_forked_child(work);
    forked.count_down();
    return answer;
  }

  std::vector<std::string> lines_;
};

TEST_F(LogForks, WhileAnotherThreadIsInASinkTheChildsLinesAreWritten) {
  EXPECT_EQ(beside_a_line([&] {
              STEMMA_LOG(kInfo, "one");
              STEMMA_LOG(kInfo, "two");
              return lines_ == std::vector<std::string>{"parent", "one", "two"} ? 0 : 1;
            }),
            0);
  EXPECT_EQ(lines_, std::vector<std::string>{"parent"});
}

TEST_F(LogForks, WhileAnotherThreadIsInASinkTheChildMaySetAnother) {
  EXPECT_EQ(beside_a_line([&] {
              int lines = 0;
              set_log_sink([&](LogLevel, std::string_view) { ++lines; });
              STEMMA_LOG(kInfo, "child");
              return lines == 1 && lines_.size() == 1 ? 0 : 1;
            }),
            0);
}

// On standard error, with all that writes there.
TEST_F(LogForks, WhileOtherThreadsWriteToStandardErrorTheChildDoes) {
  set_log_sink(write_to_stderr);
  testing::internal::CaptureStderr();
  std::atomic<bool> ended = false;
  const auto write_lines = [&] {
    while (!ended) STEMMA_LOG(kInfo, "parent");
  };
  int answers = 0;
  {
    const std::jthread one(write_lines);
    const std::jthread other(write_lines);
    for (int i = 0; i < 200 && answers == 0; ++i) {
      answers = in_forked_child([] {
        STEMMA_LOG(kInfo, "child");
        return 0;
      });
    }
    ended = true;
  }
  const std::string written = testing::internal::GetCapturedStderr();
  EXPECT_EQ(answers, 0);
  EXPECT_NE(written.find("info child\n"), std::string::npos);
}

TEST_F(LogForks, ASinkMayFork) {
  pid_t child = -1;
  set_log_sink([&](LogLevel, std::string_view line) {
    lines_.emplace_back(line);
    if (child == -1) child = ::fork();
  });
  STEMMA_LOG(kInfo, "one");
  if (child == 0) {  // which came back from the sink as its parent did
    ::alarm(kForkedChildSeconds);
    STEMMA_LOG(kInfo, "two");
    ::_exit(lines_ == std::vector<std::string>{"one", "two"} ? 0 : 1);
  }
  STEMMA_LOG(kInfo, "two");
  EXPECT_EQ(lines_, (std::vector<std::string>{"one", "two"}));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace stemma
