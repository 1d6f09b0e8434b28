// The name of the library that computes exp and its like.
#include "base/math_library.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

namespace stemma {
namespace {

TEST(MathLibrary, IsNamedWithItsVersion) {
  EXPECT_THAT(math_library_name(), testing::MatchesRegex("glibc [0-9]+\\.[0-9]+.*"));
}

}  // namespace
}  // namespace stemma
