#include "model/adapter_book.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace stemma {
namespace {

using testing::ElementsAre;

class AdapterBookTest : public testing::Test {
 protected:
  AdapterId add(const std::string& name, std::uint8_t digest = 1) {
    const AdapterId place = book_.free_place();
    EXPECT_TRUE(book_.add({name, {digest}}, place).ok());
    return place;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const AdapterIdentity& one : book_.list()) all.push_back(one.name);
    return all;
  }

  AdapterBook book_;
};

TEST_F(AdapterBookTest, FindsAnAdapterByItsName) {
  EXPECT_EQ(add("a"), AdapterId(0));
  EXPECT_EQ(add("b", 2), AdapterId(1));
  const AdapterLease found = book_.find("b");
  ASSERT_TRUE(found);
  EXPECT_EQ(found.place(), AdapterId(1));
  EXPECT_EQ(found.identity().digest[0], 2);
  EXPECT_FALSE(book_.find("c"));
  EXPECT_FALSE(book_.find(""));
  EXPECT_THAT(names(), ElementsAre("a", "b"));
}

TEST_F(AdapterBookTest, ANameIsThatOfOne) {
  add("a");
  EXPECT_EQ(book_.add({"a", {}}, book_.free_place()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(book_.add({"", {}}, book_.free_place()).error().detail,
            "adapters need names, each its own (got '')");
  EXPECT_THAT(names(), ElementsAre("a"));
}

// Routers read names from lists of them.
TEST_F(AdapterBookTest, ANameHasNoComma) {
  EXPECT_EQ(book_.check_name("a,b").error().detail,
            "an adapter's name has no comma, which parts names in lists (got 'a,b')");
  EXPECT_EQ(book_.add({"a,b", {}}, book_.free_place()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(AdapterBookTest, WhatWasTakenOutIsFoundNoMoreAndItsPlaceIsFree) {
  add("a");
  add("b");
  EXPECT_TRUE(book_.take_out("a").ok());
  EXPECT_FALSE(book_.find("a"));
  EXPECT_THAT(names(), ElementsAre("b"));
  EXPECT_THAT(book_.free_ended(), ElementsAre(AdapterId(0)));
  EXPECT_THAT(book_.free_ended(), ElementsAre());
  EXPECT_FALSE(book_.at(AdapterId(0)));
  EXPECT_EQ(add("c"), AdapterId(0));
  EXPECT_EQ(book_.take_out("a").error().code, ErrorCode::kNotFound);
}

TEST_F(AdapterBookTest, ALeaseKeepsThePlaceOfWhatWasTakenOut) {
  add("a", 1);
  AdapterLease lease = book_.find("a");
  AdapterLease copy = lease;
  EXPECT_TRUE(book_.take_out("a").ok());
  EXPECT_THAT(book_.free_ended(), ElementsAre());
  EXPECT_EQ(book_.at(lease.place()).identity().digest[0], 1) << "batches still name it";
  EXPECT_EQ(add("a", 2), AdapterId(1)) << "another of its name";
  EXPECT_EQ(book_.find("a").identity().digest[0], 2);
  lease = {};
  EXPECT_THAT(book_.free_ended(), ElementsAre()) << "the copy";
  const AdapterLease moved = std::move(copy);
  EXPECT_THAT(book_.free_ended(), ElementsAre());
  copy = {};
  EXPECT_EQ(moved.place(), AdapterId(0));
  lease = moved;
}

TEST_F(AdapterBookTest, WhenTheLastLeaseEndsThePlaceIsFree) {
  add("a");
  {
    const AdapterLease lease = book_.find("a");
    EXPECT_TRUE(book_.take_out("a").ok());
    EXPECT_THAT(book_.free_ended(), ElementsAre());
  }
  EXPECT_THAT(book_.free_ended(), ElementsAre(AdapterId(0)));
}

// One thread puts adapters in and takes them out, the others lease: nobody's place is given away.
TEST_F(AdapterBookTest, OneMayReplaceAnotherOfItsName) {
  const AdapterId place = add("a");
  const AdapterLease old = book_.find("a");
  EXPECT_EQ(book_.free_place(), AdapterId(1));
  ASSERT_TRUE(book_.add({"a", {2}}, AdapterId(1), /*replaces=*/true).ok());
  EXPECT_EQ(book_.find("a").identity().digest[0], 2);
  EXPECT_EQ(book_.at(place).identity().digest[0], 1) << "for who has a lease of it";
  EXPECT_THAT(names(), ElementsAre("a"));
}

TEST_F(AdapterBookTest, ANameThatIsReplacedIsAlwaysFound) {
  add("a");
  std::atomic<bool> ended = false;
  std::thread finder([&] {
    while (!ended) {
      EXPECT_TRUE(book_.find("a"));
      EXPECT_THAT(names(), ElementsAre("a"));
    }
  });
  for (int i = 0; i < 2'000; ++i) {
    EXPECT_TRUE(book_.add({"a", {2}}, book_.free_place(), /*replaces=*/true).ok());
    book_.free_ended();
  }
  ended = true;
  finder.join();
}

TEST_F(AdapterBookTest, LeasesAreTakenWhileAdaptersComeAndGo) {
  std::atomic<bool> over = false;
  const auto use = [&] {
    while (!over.load()) {
      const AdapterLease lease = book_.find("a");
      if (!lease) continue;
      ASSERT_EQ(book_.at(lease.place()).identity().digest, lease.identity().digest);
    }
  };
  std::thread users[] = {std::thread(use), std::thread(use)};
  for (int round = 0; round < 2000; ++round) {
    const auto digest = static_cast<std::uint8_t>(round);
    const AdapterId place = add("a", digest);
    ASSERT_EQ(book_.at(place).identity().digest[0], digest);
    ASSERT_TRUE(book_.take_out("a").ok());
    static_cast<void>(book_.free_ended());
  }
  over = true;
  for (std::thread& user : users) user.join();
  static_cast<void>(book_.free_ended());
  EXPECT_EQ(book_.free_place(), AdapterId(0)) << "all are free";
}

}  // namespace
}  // namespace stemma
