#include <cstdint>

#include "device/simd_target.h"
#include "device/simd_targets.h"  // before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/simd_target_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace stemma::HWY_NAMESPACE {

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace stemma::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stemma {

HWY_EXPORT(target_name);

std::string_view simd_target_name() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

namespace {

// Asked for once, because asking resets the choice.
const std::vector<std::int64_t>& targets() {
  static const std::vector<std::int64_t> kTargets = hwy::SupportedAndGeneratedTargets();
  return kTargets;
}

}  // namespace

std::vector<std::string_view> simd_target_names() {
  std::vector<std::string_view> names;
  for (const std::int64_t target : targets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

bool try_select_simd_target(std::string_view name) {
  for (const std::int64_t target : targets()) {
    if (name != hwy::TargetName(target)) continue;
    hwy::GetChosenTarget().Update(target);
    return true;
  }
  return false;
}

void select_best_simd_target() {
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace stemma
#endif  // HWY_ONCE
