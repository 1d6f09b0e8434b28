// MpiRanks: what ranks tell each other as processes. Run on two ranks by mpirun (tests/ranks/run);
// each checks its own part.
#include "device/mpi_ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

namespace stemma {
namespace {

// MPI begins once and ends once in a process.
RankGroup* ranks = nullptr;

TEST(MpiRanks, EachHasItsNumber) {
  EXPECT_EQ(ranks->ranks(), 2);
  EXPECT_TRUE(ranks->rank() == 0 || ranks->rank() == 1);
}

TEST(MpiRanks, AllGatherGivesEverybodyAllPartsInOrder) {
  for (const std::size_t values : {1U, 1000U, 1'000'000U}) {
    const std::vector<float> own(values, static_cast<float>(ranks->rank() + 1));
    std::vector<float> all(2 * values);
    ASSERT_TRUE(
        ranks->all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)))
            .ok());
    EXPECT_EQ(std::vector<float>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(values)),
              std::vector<float>(values, 1));
    EXPECT_EQ(std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(values), all.end()),
              std::vector<float>(values, 2));
  }
}

TEST(MpiRanks, GatherGivesThemToRankZeroAlone) {
  const std::array own = {ranks->rank() + 5};
  std::array all = {0, 0};
  ASSERT_TRUE(
      ranks->gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all))).ok());
  EXPECT_EQ(all, ranks->rank() == 0 ? (std::array{5, 6}) : (std::array{0, 0}));
}

TEST(MpiRanks, BroadcastGivesEverybodyWhatRankZeroHas) {
  for (const std::size_t bytes : {1U, 100'000U}) {
    std::vector<std::byte> told(bytes, std::byte(ranks->rank() == 0 ? 7 : 9));
    ASSERT_TRUE(ranks->broadcast(told).ok());
    EXPECT_EQ(told, std::vector<std::byte>(bytes, std::byte(7)));
  }
}

TEST(MpiRanks, AgreeOnTheErrorOfOne) {
  EXPECT_TRUE(agree(*ranks, Status()).ok());
  const Error own = {ErrorCode::kIo, "no room"};
  const Status agreed = agree(*ranks, ranks->rank() == 1 ? Status(own) : Status());
  ASSERT_FALSE(agreed.ok());
  EXPECT_EQ(agreed.error().detail, "rank 1: no room");
}

}  // namespace
}  // namespace stemma

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto opened = stemma::open_mpi_ranks(2);
  if (!opened.ok()) {
    ADD_FAILURE() << stemma::to_string(opened.error());
    return EXIT_FAILURE;
  }
  stemma::ranks = opened->get();
  return RUN_ALL_TESTS();
}
