// Policies that no key expresses, on replayed traces: their victims are those of a plain reference,
// one by one.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "replay/naive_s3fifo.h"
#include "replay/naive_tlru.h"
#include "replay/policy_twins.h"
#include "replay/replay_workloads.h"
#include "replay/shared_traces.h"

namespace stemma {
namespace {

using Trace = std::vector<TraceRequest>;

template <typename Reference>
void expect_same_victims(const Trace& trace, const std::string& policy, std::int64_t pages) {
  PolicyTwins<Reference> twins(policy, pages, Reference(pages));
  for (std::size_t i = 0; i < trace.size(); ++i) {
    ASSERT_NO_FATAL_FAILURE(twins.serve(trace[i])) << policy << ", request " << i;
    ASSERT_EQ(twins.audit(), std::nullopt) << policy << ", request " << i;
  }
  EXPECT_GT(twins.evictions(), pages);
}

template <typename Reference>
void expect_same_victims_of_workloads(const std::string& policy) {
  ReplayWorkload chats(1);
  chats.add_chats({.begin_s = 0, .end_s = 600, .gap_s = 2}, 20);
  expect_same_victims<Reference>(chats.trace(), policy, 300);
  ReplayWorkload documents(2);
  documents.add_chats({.begin_s = 0, .end_s = 400, .gap_s = 2}, 20);
  documents.add_documents({.begin_s = 200, .end_s = 900, .gap_s = 1}, 60, 0.9);
  expect_same_victims<Reference>(documents.trace(), policy, 300);
}

TEST(ReplayPolicy, TlruOfWorkloadsIsThatOfAPlainReference) {
  expect_same_victims_of_workloads<NaiveTlru>("tlru");
}

TEST(ReplayPolicy, TlruOfRealConversationsIsThatOfAPlainReference) {
  const auto trace = try_read_conversations(STEMMA_SOURCE_DIR, 500);
  if (!trace.has_value()) GTEST_SKIP() << "no conversations in ../shared";
  expect_same_victims<NaiveTlru>(*trace, "tlru", 600);
}

TEST(ReplayPolicy, S3FifoOfWorkloadsIsThatOfAPlainReference) {
  expect_same_victims_of_workloads<NaiveS3Fifo>("s3fifo");
}

TEST(ReplayPolicy, S3FifoOfRealConversationsIsThatOfAPlainReference) {
  const auto trace = try_read_conversations(STEMMA_SOURCE_DIR, 500);
  if (!trace.has_value()) GTEST_SKIP() << "no conversations in ../shared";
  expect_same_victims<NaiveS3Fifo>(*trace, "s3fifo", 600);
}

}  // namespace
}  // namespace stemma
