// SIMD target: the best is chosen, any that is listed can be selected, others are refused.
#include "device/simd_target.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

TEST(SimdTargetTest, ChoosesTheBestAndSelectsAnyListed) {
  const std::vector<std::string_view> names = simd_target_names();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(simd_target_name(), names.front());
  for (const std::string_view name : names) {
    EXPECT_TRUE(try_select_simd_target(name));
    EXPECT_EQ(simd_target_name(), name);
  }
  EXPECT_FALSE(try_select_simd_target("abacus"));
  EXPECT_EQ(simd_target_name(), names.back());
  select_best_simd_target();
  EXPECT_EQ(simd_target_name(), names.front());
}

}  // namespace
}  // namespace stemma
