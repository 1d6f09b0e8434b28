// Under which name a namespace's adapter is told.
#include "engine/adapter_names.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stemma {
namespace {

NamespaceDigest digest_of(int number) {
  NamespaceDigest digest;
  digest.bytes[31] = static_cast<std::uint8_t>(number);
  return digest;
}

TEST(AdapterNames, TheNameThatWasAskedForLastIsTold) {
  AdapterNames names(8);
  EXPECT_EQ(names.find(digest_of(1)), "");
  names.note(digest_of(1), "poet");
  names.note(digest_of(2), "sage");
  names.note(digest_of(1), "bard");
  EXPECT_EQ(names.find(digest_of(1)), "bard");
  EXPECT_EQ(names.find(digest_of(2)), "sage");
}

TEST(AdapterNames, OfMoreNamespacesThanThereMayBeTheOneNotedLongestAgoIsForgotten) {
  AdapterNames names(2);
  for (const int number : {1, 2}) names.note(digest_of(number), "poet");
  names.note(digest_of(1), "bard");
  EXPECT_EQ(names.find(digest_of(2)), "poet") << "noted again, it takes no room";
  names.note(digest_of(3), "sage");
  EXPECT_EQ(names.find(digest_of(1)), "bard");
  EXPECT_EQ(names.find(digest_of(2)), "");
  EXPECT_EQ(names.find(digest_of(3)), "sage");
}

TEST(AdapterNames, OnlyWhatIsStoredHasOne) {
  struct Told final : PrefixEventSink {
    void take(const PrefixEvent& event) override { adapters.emplace_back(event.adapter); }
    std::vector<std::string> adapters;
  } told;
  AdapterNames names(2);
  names.note(NamespaceDigest(), "poet");
  NamedEvents named(names, told);
  PrefixEvent event;
  for (const auto kind :
       {PrefixEvent::Kind::kStored, PrefixEvent::Kind::kRemoved, PrefixEvent::Kind::kCleared}) {
    event.kind = kind;
    named.take(event);
  }
  EXPECT_EQ(told.adapters, (std::vector<std::string>{"poet", "", ""}));
}

}  // namespace
}  // namespace stemma
