// A name that one process has at a time.
#include "base/file_lock.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/forked_child.h"
#include "base/refused_calls.h"
#include "base/temp_directory.h"

namespace stemma {
namespace {

class FileLockTest : public testing::Test {
 protected:
  bool is_free() const { return FileLock::take(path_, "it is taken").ok(); }

  TempDirectory directory_;
  std::string path_ = directory_.file("lock");
};

TEST_F(FileLockTest, IsOnesUntilItIsGivenUp) {
  std::optional<FileLock> lock = FileLock::take(path_, "").value();
  EXPECT_EQ(to_string(FileLock::take(path_, "it is taken").error()),
            "invalid_argument: " + path_ + ": it is taken");
  FileLock moved = std::move(*lock);
  lock.reset();
  EXPECT_FALSE(is_free());
  moved = FileLock();
  EXPECT_TRUE(is_free());
}

TEST_F(FileLockTest, IsNeitherGivenUpByAChildNorKeptByOne) {
  std::optional<FileLock> lock = FileLock::take(path_, "").value();
  EXPECT_EQ(in_forked_child([&] {
              lock.reset();
              return 0;
            }),
            0);
  EXPECT_FALSE(is_free());
  beside_child([&] {
    lock.reset();
    EXPECT_TRUE(is_free());
  });
}

TEST_F(FileLockTest, WhereItCannotBeMadeThatIsSaid) {
  EXPECT_EQ(FileLock::take("/nowhere/lock", "").error().code, ErrorCode::kIo);
}

TEST_F(FileLockTest, WhereItCannotBeToldWhoseTheNameIsThatIsSaid) {
  const int said = in_forked_child([&] {
    if (!refuse_stat_of_names(EIO)) return 1;
    const auto lock = FileLock::take(path_, "");
    return lock.ok() || lock.error().sys_errno != EIO ? 2 : 0;
  });
  if (said == 1) GTEST_SKIP() << "this system allows no seccomp filter";
  EXPECT_EQ(said, 0) << "-1: it is asked again and again";
}

}  // namespace
}  // namespace stemma
