// GuardedStore: a lane that hangs or fails is left alone, the other is not, and both are found
// again when they are back; on a clock of the test's own.
#include "tier/guarded_store.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "tier/memory_page_store.h"

namespace stemma {
namespace {

constexpr std::int64_t kPatienceUs = 2'000;

// Fails, or hangs until the deadline, when the test says so.
class MoodyStore final : public PageStore {
 public:
  explicit MoodyStore(FakeClock& clock) : clock_(clock) {}

  Tier tier() const override { return Tier::kDisk; }
  std::string_view name() const override { return "moody"; }
  void describe(const NamespaceDigest&, std::string_view) override {}
  bool lookup_is_local() const override { return true; }
  Result<std::int64_t> lookup(std::span<const PageKey> keys, std::int64_t) override {
    return std::ssize(keys);
  }
  void read(std::span<PageRead> reads, std::int64_t deadline_us) override {
    ++calls;
    suffer(reads_hang, deadline_us);
    for (PageRead& read : reads) {
      read.verdict = reads_hang || reads_fail ? PageVerdict::kFailed : PageVerdict::kMissing;
    }
    if (one_page_fails) reads.front().verdict = PageVerdict::kFailed;
  }
  void write(std::span<PageWrite> writes, std::int64_t deadline_us) override {
    ++calls;
    suffer(writes_hang, deadline_us);
    for (PageWrite& write : writes) {
      write.verdict = writes_hang ? PageVerdict::kFailed : PageVerdict::kDone;
    }
  }
  std::int64_t renew(std::span<const PageKey>, std::int64_t) override { return 1; }
  void remove(std::span<const PageRemoval> removals, std::int64_t) override {
    removed += std::ssize(removals);
  }
  Status make_removals_last(std::int64_t) override { return Error{ErrorCode::kIo, "back soon"}; }
  PurgeOutcome purge(std::span<const NamespaceFamily>, std::int64_t deadline_us) override {
    ++calls;
    suffer(writes_hang, deadline_us);
    if (!writes_hang) return {.pages = 2};
    return {.status = Error{ErrorCode::kDeadline, "it hangs"}, .advanced = purge_advances};
  }
  PurgeOutcome purge_behind(std::span<const NamespaceFamily>, std::int64_t pages_before,
                            std::int64_t) override {
    ++calls;
    return {.pages = 100 + pages_before};
  }
  PageStoreUsage usage() const override { return {}; }
  void visit_metrics(MetricVisitor&) const override {}

  bool reads_hang = false;
  bool reads_fail = false;
  bool one_page_fails = false;
  bool writes_hang = false;
  bool purge_advances = false;
  std::int64_t removed = 0;
  std::int64_t calls = 0;

 private:
  void suffer(bool hangs, std::int64_t deadline_us) {
    if (hangs) clock_.advance_us(deadline_us - clock_.now_us());
  }

  FakeClock& clock_;
};

class GuardedStoreTest : public ::testing::Test {
 protected:
  GuardedStoreTest() {
    auto moody = std::make_unique<MoodyStore>(clock_);
    store_ = moody.get();
    guarded_ = std::make_unique<GuardedStore>(
        std::move(moody), clock_,
        BreakerOptions{.failures_to_open = 3, .backoff_us = 1000, .backoff_us_max = 1000});
  }

  PageVerdict read() {
    std::array<PageRead, 2> reads;
    guarded_->read(reads, clock_.now_us() + kPatienceUs);
    return reads[1].verdict;
  }
  PageVerdict write() {
    std::array<PageWrite, 2> writes;
    guarded_->write(writes, clock_.now_us() + kPatienceUs);
    return writes[1].verdict;
  }
  // Nothing: it is not known.
  std::optional<std::int64_t> found() {
    const auto found = guarded_->lookup(std::array<PageKey, 2>(), clock_.now_us() + kPatienceUs);
    return found.ok() ? std::optional(*found) : std::nullopt;
  }

  std::int64_t metric(std::string_view name) const {
    struct Numbers final : MetricVisitor {
      void counter(std::string_view name, std::int64_t value) override { values[name] = value; }
      void gauge(std::string_view name, std::int64_t value) override { values[name] = value; }
      std::map<std::string_view, std::int64_t> values;
    } numbers;
    guarded_->visit_metrics(numbers);
    return numbers.values.at(name);
  }

  FakeClock clock_;
  MoodyStore* store_ = nullptr;
  std::unique_ptr<GuardedStore> guarded_;
};

TEST_F(GuardedStoreTest, OneDeadlineMissedIsEnough) {
  EXPECT_EQ(found(), 2);
  store_->reads_hang = true;
  EXPECT_EQ(read(), PageVerdict::kFailed);
  const std::int64_t now_us = clock_.now_us();
  EXPECT_EQ(found(), std::nullopt) << "what will not come is not promised";
  EXPECT_EQ(read(), PageVerdict::kFailed);
  EXPECT_EQ(clock_.now_us(), now_us) << "nobody waits";
  EXPECT_EQ(store_->calls, 1);
}

TEST_F(GuardedStoreTest, ErrorsOpenItWhenTheyComeInARow) {
  store_->reads_fail = true;
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(found(), 2);
    read();
  }
  EXPECT_EQ(found(), std::nullopt);
}

// As where the first page to be stored turned out to be wrong in host memory.
TEST_F(GuardedStoreTest, CallsOfNoPagesDoNotCloseIt) {
  store_->reads_hang = store_->writes_hang = true;
  EXPECT_EQ(read(), PageVerdict::kFailed);
  EXPECT_EQ(write(), PageVerdict::kFailed);
  EXPECT_EQ(store_->calls, 2);
  clock_.advance_us(1000);  // now it may be tried
  guarded_->read({}, clock_.now_us() + kPatienceUs);
  guarded_->write({}, clock_.now_us() + kPatienceUs);
  EXPECT_EQ(store_->calls, 2);
  EXPECT_EQ(read(), PageVerdict::kFailed);
  EXPECT_EQ(read(), PageVerdict::kFailed);
  EXPECT_EQ(write(), PageVerdict::kFailed);
  EXPECT_EQ(write(), PageVerdict::kFailed);
  EXPECT_EQ(store_->calls, 4) << "each was tried once";
}

TEST_F(GuardedStoreTest, APageThatCannotBeReadIsNoOutage) {
  store_->one_page_fails = true;
  for (int call = 0; call < 9; ++call) EXPECT_EQ(read(), PageVerdict::kMissing);
  EXPECT_EQ(store_->calls, 9);
}

TEST_F(GuardedStoreTest, AProbeFindsItBack) {
  store_->reads_hang = true;
  read();
  store_->reads_hang = false;
  clock_.advance_us(1000);
  EXPECT_EQ(found(), 2) << "somebody must ask for it to be tried";
  EXPECT_EQ(read(), PageVerdict::kMissing);
  EXPECT_EQ(found(), 2);
}

TEST_F(GuardedStoreTest, ReadsGoOnWhileWritesHang) {
  store_->writes_hang = true;
  EXPECT_EQ(write(), PageVerdict::kFailed);
  EXPECT_EQ(write(), PageVerdict::kFailed);
  EXPECT_EQ(store_->calls, 1);
  EXPECT_EQ(read(), PageVerdict::kMissing);
  EXPECT_EQ(found(), 2);
}

TEST_F(GuardedStoreTest, APurgeIsAWriteToTheBreaker) {
  const auto purge = [&] { return guarded_->purge({}, clock_.now_us() + kPatienceUs); };
  EXPECT_EQ(purge().pages, 2);
  store_->writes_hang = true;
  EXPECT_FALSE(purge().status.ok());
  const std::int64_t calls = store_->calls;
  EXPECT_FALSE(purge().status.ok());
  EXPECT_EQ(write(), PageVerdict::kFailed);
  EXPECT_EQ(store_->calls, calls) << "it is left alone";
  store_->writes_hang = false;
  clock_.advance_us(2000);
  EXPECT_TRUE(purge().status.ok());
  EXPECT_EQ(write(), PageVerdict::kDone);
}

// It is there, and has much to do.
TEST_F(GuardedStoreTest, APurgeThatGetsOnIsNoOutage) {
  store_->writes_hang = store_->purge_advances = true;
  for (int call = 0; call < 5; ++call) {
    EXPECT_TRUE(guarded_->purge({}, clock_.now_us() + kPatienceUs).got_on());
  }
  EXPECT_EQ(store_->calls, 5);
}

TEST_F(GuardedStoreTest, APurgeBehindAPageIsOneAndNoOther) {
  EXPECT_EQ(guarded_->purge_behind({}, 7, kPatienceUs).pages, 107);
  EXPECT_EQ(guarded_->purge_behind({}, 0, kPatienceUs).pages, 2);
  store_->writes_hang = true;
  write();
  EXPECT_FALSE(guarded_->purge_behind({}, 7, clock_.now_us() + kPatienceUs).status.ok());
}

TEST_F(GuardedStoreTest, WhatItDoesNotGuardIsTheStoresOwn) {
  const std::array<PageRemoval, 3> removals;
  guarded_->remove(removals, kPatienceUs);
  EXPECT_EQ(store_->removed, 3);
  EXPECT_EQ(guarded_->make_removals_last(kPatienceUs).error().detail, "back soon");
  EXPECT_EQ(guarded_->renew(std::array<PageKey, 2>(), kPatienceUs), 1);
}

TEST_F(GuardedStoreTest, BothLanesAreCounted) {
  EXPECT_EQ(metric("stemma_disk_breaker_open"), 0);
  store_->writes_hang = true;
  write();
  write();
  EXPECT_EQ(metric("stemma_disk_breaker_open"), 1);
  EXPECT_EQ(metric("stemma_disk_breaker_openings_total"), 1);
  EXPECT_EQ(metric("stemma_disk_breaker_refusals_total"), 1);
  store_->reads_hang = true;
  read();
  read();
  EXPECT_EQ(metric("stemma_disk_breaker_openings_total"), 2);
  EXPECT_EQ(metric("stemma_disk_breaker_refusals_total"), 2);
}

}  // namespace
}  // namespace stemma
