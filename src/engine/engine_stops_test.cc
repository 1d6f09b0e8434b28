// Why a request found no more than it did, where it waited for pages of a lower tier.
#include <gtest/gtest.h>

#include "engine/shadow_audit_fixture.h"

namespace stemma {
namespace {

class EngineStops : public ShadowAuditFixture {
 protected:
  // The text is in host memory alone, and is waited for so long.
  void open_waiting(std::int64_t load_wait_us) {
    options_.shadow_audit_percent = 0;
    options_.kv.tiers.load_by_layer = false;
    options_.kv.tiers.load_wait_us = load_wait_us;
    open_tiers(/*host_pages=*/64, /*store_bytes=*/1 << 20);
    open();
    ask(prompt_, 1);
    settle();
    open();
  }

  const Tokens prompt_ = text(1, 41);
};

TEST_F(EngineStops, WhatCameInTimeWasFoundToItsEnd) {
  open_waiting(/*load_wait_us=*/1'000'000'000);
  const RequestStats stats = ask(prompt_, 1).stats;
  EXPECT_EQ(stats.cached_tokens, 40);
  EXPECT_EQ(stats.brought.total(), 40);
  EXPECT_EQ(stats.stop, PrefixStop::kTail);
}

TEST_F(EngineStops, WhoWaitedForLongEnoughSaysSo) {
  open_waiting(/*load_wait_us=*/100);
  tiers_->holds = true;
  const RequestStats stats = ask(prompt_, 1).stats;
  EXPECT_EQ(stats.cached_tokens, 0);
  EXPECT_EQ(stats.brought.total(), 0) << "what comes later was not found";
  EXPECT_EQ(stats.stop, PrefixStop::kDeadline);
  tiers_->holds = false;
  settle();
}

}  // namespace
}  // namespace stemma
