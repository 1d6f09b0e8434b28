// Result: a value or an error, and the macros that pass errors on.
#include "stemma/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace stemma {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error{ErrorCode::kInvalidArgument, "n must be even (got 3)"};
  return n / 2;
}

Result<int> quarter(int n) {
  STEMMA_ASSIGN_OR_RETURN(const int once, half(n));
  return half(once);
}

Status check_even(int n) {
  STEMMA_RETURN_IF_ERROR(half(n));
  return {};
}

TEST(Result, CarriesAValue) {
  const Result<int> r = half(8);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(*r, 4);
  EXPECT_EQ(*quarter(8), 2);
}

TEST(Result, PassesErrorsOn) {
  EXPECT_EQ(quarter(6).error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(check_even(3).ok());
  EXPECT_TRUE(check_even(2).ok());
}

TEST(Result, MovesItsValueOut) {
  Result<std::unique_ptr<int>> r = std::make_unique<int>(7);
  const std::unique_ptr<int> owned = std::move(r).value();
  EXPECT_EQ(*owned, 7);
}

TEST(Error, IsOneLineForAPerson) {
  EXPECT_EQ(to_string(Error{ErrorCode::kInvalidArgument, "--page-size must be at least 1 (got 0)"}),
            "invalid_argument: --page-size must be at least 1 (got 0)");
  EXPECT_EQ(to_string(Error{ErrorCode::kIo, "cannot open x", 2}),
            "io: cannot open x (No such file or directory)");
}

}  // namespace
}  // namespace stemma
