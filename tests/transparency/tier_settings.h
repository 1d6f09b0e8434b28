// TierSettings: what lies below an engine in the tests of I13.
//
// Thread:     values.
// Memory:     a few strings, and prompts.
// Cost:       none.
// Not here:   how an engine is opened (served_trial), what is asked (engine_trial).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/prng.h"
#include "engine/served_tiers.h"
#include "stemma/options.h"
#include "transparency/engine_trial.h"

namespace stemma {

inline constexpr std::int64_t kLongUs = 60'000'000;
inline constexpr std::chrono::seconds kLong(60);

inline constexpr WritePolicy kPolicies[] = {
    WritePolicy::kWriteThrough, WritePolicy::kWriteThroughSelective, WritePolicy::kWriteBack};

// So few tokens on the device that other_prompts() push everything out.
inline constexpr std::int64_t kSmallTokens = 448;

// Texts that share nothing with anything.
inline std::vector<std::vector<TokenId>> other_prompts() {
  Prng prng(12);
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 16; ++i) prompts.push_back(random_tokens(prng, 100));
  return prompts;
}

inline ServedTierOptions host_only(const std::string& layout = "page_first") {
  ServedTierOptions tiers;
  tiers.host_bytes = std::int64_t{16} << 20;
  tiers.host_layout = layout;
  return tiers;
}

inline ServedTierOptions on_disk(const std::string& directory) {
  ServedTierOptions tiers;
  tiers.disk_directory = directory;
  return tiers;
}

inline ServedTierOptions on_remote(const std::string& url) {
  ServedTierOptions tiers;
  tiers.remote_url = url;
  return tiers;
}

}  // namespace stemma
