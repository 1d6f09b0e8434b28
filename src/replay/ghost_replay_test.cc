// Ghosts against full replay: on real traces, one page in 20 watched, what each is off by at every
// capacity; and exact where every page is watched.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "ghost/ghost_panel.h"
#include "prefix/eviction_order.h"
#include "replay/ghost_feed.h"
#include "replay/replay_workloads.h"
#include "replay/replayer.h"
#include "replay/shared_traces.h"

namespace stemma {
namespace {

constexpr std::int64_t kPagesPerSample = 20;  // 5%
constexpr std::uint64_t kSeeds = 5;

struct Workload {
  std::vector<TraceRequest> requests;
  std::vector<std::int64_t> capacities;  // in pages
};

std::vector<std::int64_t> shares_of(std::int64_t different_pages,
                                    std::initializer_list<double> shares) {
  std::vector<std::int64_t> capacities;
  for (const double share : shares) {
    capacities.push_back(static_cast<std::int64_t>(share * static_cast<double>(different_pages)));
  }
  return capacities;
}

std::optional<Workload> try_conversations() {
  auto requests = try_read_conversations(STEMMA_SOURCE_DIR);
  if (!requests.has_value()) return std::nullopt;
  return Workload{*std::move(requests), shares_of(182'790, {.005, .01, .02, .05, .10, .20, .30})};
}

std::optional<Workload> try_agents() {
  auto requests = try_read_agent_prompts(STEMMA_SOURCE_DIR);
  if (!requests.has_value()) return std::nullopt;
  return Workload{*std::move(requests), shares_of(24'751, {.005, .01, .02, .05, .10})};
}

// Hit rates of full replay, one a capacity.
std::vector<double> replay(const Workload& workload, const std::string& policy) {
  std::vector<std::unique_ptr<Replayer>> replayers;
  for (const std::int64_t capacity_pages : workload.capacities) {
    replayers.push_back(*Replayer::open({.policy = policy, .capacity_pages = capacity_pages}));
  }
  std::vector<double> hit_rates;
  for (const auto& replayer : replayers) {
    for (const TraceRequest& request : workload.requests) replayer->feed(request);
    hit_rates.push_back(replayer->report().hit_rate());
  }
  return hit_rates;
}

// The largest error, in points, of all capacities and seeds.
double worst_points_off(const Workload& workload, const std::string& policy) {
  const std::vector<double> full = replay(workload, policy);
  double worst = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto panel = *GhostPanel::open(
        {.curve = {.capacity_pages_max = workload.capacities.back(),
                   .pages_per_sample = kPagesPerSample,
                   .seed = seed},
         .policies = policy == "lru" ? std::vector<std::string>() : std::vector{policy},
         .capacities = workload.capacities});
    for (const TraceRequest& request : workload.requests) panel->feed(ghost_request_of(request));
    for (std::size_t i = 0; i < full.size(); ++i) {
      const double ghost = *panel->try_hit_rate(policy, workload.capacities[i]);
      worst = std::max(worst, 100 * std::abs(ghost - full[i]));
    }
  }
  ::testing::Test::RecordProperty("points_off_" + policy, std::to_string(worst));
  return worst;
}

// Chats of which every request leaves its last page behind as its output.
std::vector<TraceRequest> chats_with_outputs() {
  std::vector<TraceRequest> requests = workload_by_name("chats");
  requests.resize(3'000);
  for (TraceRequest& request : requests) {
    request.output_page_hashes = {request.page_hashes.back()};
    request.page_hashes.pop_back();
  }
  return requests;
}

// The same few questions again and again, each with the answer that it had before.
std::vector<TraceRequest> questions_asked_again() {
  Prng random(3);
  std::vector<TraceRequest> requests(2'000);
  for (TraceRequest& request : requests) {
    const std::int64_t question = random.below(10) + random.below(10) * random.below(10);
    request.page_hashes = {1, 100 * question + 2};
    for (std::int64_t page = 3; page < 20; ++page) {
      request.output_page_hashes.push_back(100 * question + page);
    }
  }
  return requests;
}

std::vector<std::string> known_policies() {
  std::vector<std::string> policies;
  std::stringstream names(EvictionOrder::known_names());
  for (std::string name; names >> name;) policies.push_back(name.substr(0, name.find(',')));
  return policies;
}

void expect_exact(const Workload& workload) {
  const std::vector<std::string> policies = known_policies();
  ASSERT_GE(policies.size(), 11u);
  const auto panel = *GhostPanel::open(
      {.curve = {.capacity_pages_max = workload.capacities.back(), .pages_per_sample = 1},
       .policies = policies,
       .capacities = workload.capacities});
  for (const TraceRequest& request : workload.requests) panel->feed(ghost_request_of(request));
  for (const std::string& policy : policies) {
    const std::vector<double> full = replay(workload, policy);
    for (std::size_t i = 0; i < full.size(); ++i) {
      EXPECT_NEAR(*panel->try_hit_rate(policy, workload.capacities[i]), full[i], 1e-9) << policy;
    }
  }
}

TEST(GhostsThatWatchEveryPage, AreExactForEveryPolicy) {
  const Workload workload{chats_with_outputs(), {500, 3'000}};
  expect_exact(workload);
  const std::vector<double> lru = replay(workload, "lru");
  for (const char* policy : {"hazard", "tlru", "s3fifo"}) {
    const std::vector<double> full = replay(workload, policy);
    double from_lru = 0;
    for (std::size_t i = 0; i < full.size(); ++i) {
      from_lru = std::max(from_lru, std::abs(full[i] - lru[i]));
    }
    EXPECT_GT(from_lru, 0.005) << policy << " shows nothing here";
  }
}

// An answer is computed in pages of its own, which takes others' from a full cache, and turns out
// to be there already.
TEST(GhostsThatWatchEveryPage, AreExactWhereAnswersComeAgain) {
  expect_exact({questions_asked_again(), {25, 100, 400}});
}

// Points off at most, of the seeds above: an estimate of 5% of the pages.
double bound_of_conversations(const std::string& policy) {
  if (policy == "fifo") return 3.0;
  return policy == "hazard" || policy == "s3fifo" ? 1.75 : 1.5;
}

class Ghosts : public testing::TestWithParam<std::string> {};

TEST_P(Ghosts, OfConversationsAreWithinTheirBounds) {
  const auto conversations = try_conversations();
  if (!conversations.has_value()) GTEST_SKIP() << "no conversations in ../shared";
  const double worst = worst_points_off(*conversations, GetParam());
  EXPECT_LT(worst, bound_of_conversations(GetParam())) << worst;
}

TEST_P(Ghosts, OfAgentsAreWithinTheirBounds) {
  const auto agents = try_agents();
  if (!agents.has_value()) GTEST_SKIP() << "no agents' prompts in ../shared";
  EXPECT_LT(worst_points_off(*agents, GetParam()), GetParam() == "tlru" ? 2.25 : 1.5);
}

INSTANTIATE_TEST_SUITE_P(Policies, Ghosts,
                         testing::Values("lru", "slru", "gdsf", "fifo", "hazard", "tlru", "s3fifo"),
                         [](const auto& policy) { return policy.param; });

}  // namespace
}  // namespace stemma
