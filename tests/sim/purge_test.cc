// A purge over all tiers and the stamp model: what was purged is computed afresh, also after a
// restart; requests that run end as they would have; a store that does not confirm is not used.
#include <gtest/gtest.h>

#include "sim/tiered_harness.h"

namespace stemma {
namespace {

constexpr std::size_t at(Tier tier) {
  return static_cast<std::size_t>(tier);
}

class PurgeTest : public ::testing::Test {
 protected:
  RequestSpec spec_in(std::uint8_t space, std::int64_t tokens) {
    RequestSpec spec;
    spec.prompt = some_tokens(space + 1, tokens);
    spec.max_tokens = 4;
    spec.namespace_digest.bytes[0] = space;
    return spec;
  }
  // Runs one request to its end, and what it begins; the tokens that it found.
  std::int64_t answer(std::uint8_t space) {
    const RequestId id = harness.submit(spec_in(space, 130));
    harness.run();
    harness.expect_closed_form();
    const std::int64_t cached = harness.outcome(id).stats.cached_tokens;
    pass(1000);
    return cached;
  }
  void pass(int steps) {
    for (int i = 0; i < steps; ++i) {
      harness.clock().advance_us(1000);
      harness.engine().step();
    }
  }
  PurgeId purge(std::uint8_t space) {
    NamespaceDigest digest;
    digest.bytes[0] = space;
    return *harness.engine().purge(std::vector{family_of(digest)});
  }

  EngineOptions options = tiered_options(/*page_size=*/4, /*pool_tokens=*/640);
  SimulatedTierOptions tiers = tiers_of(/*host_pages=*/64, {Tier::kDisk, Tier::kRemote});
  StampHarness harness{options, KvLayout::kLayerFirst, &tiers};
};

TEST_F(PurgeTest, TakesANamespaceOutOfEveryTierAndNoOther) {
  answer(0);
  answer(1);
  const PurgeId id = purge(0);
  pass(1000);
  const PurgeReport report = *harness.engine().purge_report(id);
  EXPECT_TRUE(report.pending.empty());
  EXPECT_GT(report.pages[at(Tier::kDevice)] + report.pages[at(Tier::kHost)], 0);
  EXPECT_GE(report.pages[at(Tier::kDisk)], 32);
  EXPECT_GE(report.pages[at(Tier::kRemote)], 32);
  EXPECT_EQ(answer(1), 128);
  harness.restart();
  EXPECT_EQ(answer(0), 0);
  EXPECT_EQ(answer(1), 128);
  EXPECT_EQ(answer(0), 128) << "it is used afresh";
  harness.restart();
  EXPECT_EQ(answer(0), 128);
}

TEST_F(PurgeTest, RequestsThatRunEndAsTheyAreAndLeaveNothing) {
  answer(0);
  const RequestId warm = harness.submit(spec_in(0, 150));
  const RequestId cold = harness.submit(spec_in(1, 150));
  harness.step();
  harness.step();
  ASSERT_TRUE(harness.engine().purge({}).ok());
  harness.run();
  harness.expect_closed_form();
  EXPECT_EQ(harness.outcome(warm).finish, FinishReason::kLength);
  EXPECT_EQ(harness.outcome(cold).finish, FinishReason::kLength);
  pass(1000);  // copies that hold what was purged end too
  EXPECT_EQ(harness.engine().kv().usage().total_tokens(), 0) << "they published nothing";
  EXPECT_EQ(harness.metric("stemma_pending_purges"), 0);
  EXPECT_EQ(answer(0), 0);
  EXPECT_EQ(answer(1), 0);
}

TEST_F(PurgeTest, AStoreThatDoesNotConfirmIsNotAskedUntilItDoes) {
  answer(0);
  harness.tiers().store(1).set_faults({.purge_fails = 100});
  const PurgeId id = purge(0);
  pass(1000);
  EXPECT_EQ(harness.engine().purge_report(id)->pending, std::vector{Tier::kRemote});
  EXPECT_EQ(harness.metric("stemma_pending_purges"), 1);
  const std::int64_t kept = harness.tiers().store(1).usage().pages;
  EXPECT_GE(kept, 32);
  EXPECT_EQ(answer(0), 0) << "though it is still there";
  EXPECT_EQ(harness.tiers().store(1).usage().pages, kept) << "and nothing was stored beside it";
  harness.tiers().store(1).set_faults({});
  for (int i = 0; i < 2000 && harness.metric("stemma_pending_purges") > 0; ++i) {
    harness.clock().advance_us(options.kv.tiers.store_deadline_us);
    harness.engine().step();
  }
  EXPECT_TRUE(harness.engine().purge_report(id)->pending.empty());
  EXPECT_EQ(harness.tiers().store(1).usage().pages, 0);
}

}  // namespace
}  // namespace stemma
