// What references within a schema name, and that many of them cost no more than the schema.
#include "grammar/schema_reference.h"

#include <gtest/gtest.h>

#include <string>

namespace stemma {
namespace {

const TemplateJson kRoot = TemplateJson::parse(
    R"({"$defs":{"a":1,"a/b":2,"a~b":3,"a<b":4,"%41":5,"list":[6,[7]],"":8},"a":9})");

// As JSON; why there is none, in brackets.
std::string named_by(const TemplateJson& reference) {
  SchemaReferences references(kRoot);
  const Result<const TemplateJson*> named = references.named_by(reference);
  return named.ok() ? (*named)->dump() : "(" + named.error().detail + ")";
}

TEST(SchemaReferences, NameMembersAndItems) {
  EXPECT_EQ(named_by("#"), kRoot.dump());
  EXPECT_EQ(named_by("#/a"), "9");
  EXPECT_EQ(named_by("#/$defs/a"), "1");
  EXPECT_EQ(named_by("#/$defs/list/0"), "6");
  EXPECT_EQ(named_by("#/$defs/list/1/0"), "7");
  EXPECT_EQ(named_by("#/$defs/"), "8");
}

TEST(SchemaReferences, AreDecoded) {
  EXPECT_EQ(named_by("#/$defs/a~1b"), "2");
  EXPECT_EQ(named_by("#/$defs/a~0b"), "3");
  EXPECT_EQ(named_by("#/$defs/a%3Cb"), "4");
  EXPECT_EQ(named_by("#/$defs/a<b"), "4");
  EXPECT_EQ(named_by("#/$defs/%41"), "5") << "as it is written, where nothing has the name meant";
}

TEST(SchemaReferences, SayWhyTheyNameNothing) {
  EXPECT_EQ(named_by(5), "(must be a string)");
  EXPECT_EQ(named_by("other#/a"), "(only within the schema (#...))");
  EXPECT_EQ(named_by("#a"), "(\"#a\" is no place)");
  EXPECT_EQ(named_by("#/$defs/a~2"), "(\"#/$defs/a~2\" is no place)");
  for (const char* const nowhere : {"#/b", "#/a/b", "#/$defs/list/2", "#/$defs/list/00",
                                    "#/$defs/list/-", "#/$defs/list/", "#/$defs/list/x"}) {
    EXPECT_EQ(named_by(nowhere), "(\"" + std::string(nowhere) + "\" is not there)");
  }
}

// 2^34 comparisons, were each a look through all members.
TEST(SchemaReferences, DoNotLookThroughWideObjectsEachTime) {
  constexpr int kWidth = 1 << 17;
  TemplateJson::object_t members;
  for (int i = 0; i < kWidth; ++i) members.push_back({std::to_string(i), i});
  const TemplateJson root = std::move(members);
  SchemaReferences references(root);
  for (int i = 0; i < kWidth; ++i) {
    const auto named = references.named_by("#/" + std::to_string(i));
    ASSERT_TRUE(named.ok());
    ASSERT_EQ(**named, i);
  }
}

}  // namespace
}  // namespace stemma
