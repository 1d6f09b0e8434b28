// Flags of every type, what is refused and in which words, and what is asked for instead of a run.
#include "cli/flags.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

// A program with a command, a flag of each type and a group.
class FlagsTest : public testing::Test {
 protected:
  FlagsTest() : command_(line_.flags().add_command("run", "Does it")) {
    line_.require_command();
    command_.add("where", where_, "an argument");
    command_.add("--text", text_, "help of text").capture_default_str();
    command_.add("--int", int_, "help").check_range(1, 9);
    command_.add("--int64", int64_, "help").check_range(std::int64_t{0}, std::int64_t{1} << 40);
    command_.add("--uint64", uint64_, "help");
    command_.add("--float", float_, "help");
    command_.add("--double", double_, "help").check_range(0.0, 1.5);
    command_.add("--maybe", maybe_, "help");
    command_.add("--maybe-text", maybe_text_, "help").needs("--maybe");
    command_.add("--list,--also", list_, "help").delimiter(',').check_member({"a", "b", "c"});
    command_.add("--switch", switch_, "help");
    Flags group = command_.add_group("more", "Of a group");
    group.add("--keep{false}", keep_, "help");
  }

  // "run" and what follows it.
  Result<bool> parse(std::vector<const char*> words) {
    words.insert(words.begin(), {"program", "run"});
    return line_.parse(words);
  }

  std::string refusal_of(const std::vector<const char*>& words) {
    const Result<bool> typed = parse(words);
    if (typed.ok()) return "";
    EXPECT_EQ(typed.error().code, ErrorCode::kInvalidArgument);
    return typed.error().detail;
  }

  // What stands on standard output when these words, no command before them, are parsed.
  std::string printed_for(std::vector<const char*> words) {
    words.insert(words.begin(), "program");
    testing::internal::CaptureStdout();
    const Result<bool> typed = line_.parse(words);
    std::string printed = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(typed.ok() && !*typed);
    return printed;
  }

  std::string where_;
  std::string text_ = "its default";
  int int_ = 0;
  std::int64_t int64_ = 0;
  std::uint64_t uint64_ = 0;
  float float_ = 0;
  double double_ = 0;
  std::optional<std::int64_t> maybe_;
  std::optional<std::string> maybe_text_;
  std::vector<std::string> list_ = {"default"};
  bool switch_ = false;
  bool keep_ = true;
  CommandLine line_{{.name = "program", .description = "A program.", .version = "program 7"}};
  Flags command_;
};

TEST_F(FlagsTest, WriteWhatWasTyped) {
  ASSERT_TRUE(*parse({"there", "--text", "words", "--int=9", "--int64", "1099511627776", "--uint64",
                      "18446744073709551615", "--float", "0.25", "--double", "1.5", "--switch"}));
  EXPECT_EQ(where_, "there");
  EXPECT_EQ(text_, "words");
  EXPECT_EQ(int_, 9);
  EXPECT_EQ(int64_, std::int64_t{1} << 40);
  EXPECT_EQ(uint64_, UINT64_MAX);
  EXPECT_EQ(float_, 0.25F);
  EXPECT_EQ(double_, 1.5);
  EXPECT_TRUE(switch_);
}

TEST_F(FlagsTest, LeaveAloneWhatWasNot) {
  ASSERT_TRUE(*parse({}));
  EXPECT_EQ(text_, "its default");
  EXPECT_EQ(maybe_, std::nullopt);
  EXPECT_EQ(maybe_text_, std::nullopt);
  EXPECT_EQ(list_, std::vector<std::string>{"default"});
  EXPECT_FALSE(switch_);
  EXPECT_TRUE(keep_);
}

TEST_F(FlagsTest, HoldWhatMayBeMissing) {
  ASSERT_TRUE(*parse({"--maybe", "0", "--maybe-text", ""}));
  EXPECT_EQ(maybe_, 0);
  EXPECT_EQ(maybe_text_, "");
}

TEST_F(FlagsTest, TakeSeveralValuesUnderAnyOfTheirNames) {
  ASSERT_TRUE(*parse({"--list", "a,b", "--also", "c", "a"}));
  EXPECT_EQ(list_, (std::vector<std::string>{"a", "b", "c", "a"}));
}

TEST_F(FlagsTest, OfAGroupAreTheCommandsToo) {
  ASSERT_TRUE(*parse({"--keep"}));
  EXPECT_FALSE(keep_);
}

TEST_F(FlagsTest, SayHowOftenTheyWereGiven) {
  const Flag more = command_.add("--one,--two", text_, "help");
  EXPECT_FALSE(command_.parsed());
  ASSERT_TRUE(*parse({"--list", "a,b", "--list", "c", "--switch"}));
  EXPECT_TRUE(command_.parsed());
  EXPECT_EQ(command_.count("--list"), 3);
  EXPECT_EQ(command_.count("--switch"), 1);
  EXPECT_EQ(more.count(), 0);
  EXPECT_EQ(more.get_name(), "--one");
}

TEST_F(FlagsTest, RefuseWhatTheyCannotBe) {
  EXPECT_EQ(refusal_of({"--int", "10"}), "--int: Value 10 not in range 1 to 9");
  EXPECT_EQ(refusal_of({"--int64", "-1"}), "--int64: Value -1 not in range 0 to 1099511627776");
  EXPECT_EQ(refusal_of({"--double", "2"}), "--double: Value 2 not in range 0.000000 to 1.500000");
  EXPECT_EQ(refusal_of({"--float", "x"}), "Could not convert: --float = x");
  EXPECT_EQ(refusal_of({"--list", "a,d"}), "--list: d not in {a,b,c}");
  EXPECT_EQ(refusal_of({"--maybe-text", "x"}), "--maybe-text requires --maybe");
  EXPECT_EQ(refusal_of({"--other"}), "The following argument was not expected: --other");
}

// As of a variable of the shell that is not set.
TEST_F(FlagsTest, RefuseAnEmptyValue) {
  for (const char* const name :
       {"--text", "--int", "--int64", "--uint64", "--float", "--double", "--maybe", "--list"}) {
    EXPECT_EQ(refusal_of({name, ""}), std::string(name) + ": is empty");
  }
  EXPECT_EQ(refusal_of({""}), "where: is empty");
  EXPECT_EQ(refusal_of({"--text=", "--switch"}), "--text: is empty");
  EXPECT_EQ(refusal_of({"--text==", "--switch"}), "");
}

// As prompts that begin with a comment.
TEST_F(FlagsTest, TakeAnyTextForAValue) {
  for (const char* const value : {"-- adds two numbers\nlocal sum =", "--a=", "--=", "--[a-z]="}) {
    ASSERT_TRUE(*parse({"--text", value})) << value;
    EXPECT_EQ(text_, value);
  }
}

TEST_F(FlagsTest, RefuseRealNumbersThatAreNotFinite) {
  EXPECT_EQ(refusal_of({"--double", "nan"}), "--double: nan is no finite number");
  EXPECT_EQ(refusal_of({"--float", "-inf"}), "--float: -inf is no finite number");
  EXPECT_EQ(refusal_of({"--float", "1e39"}), "--float: 1e39 is no finite number");
  EXPECT_EQ(refusal_of({"--double", "1e-400"}), "");
}

TEST_F(FlagsTest, AreRequiredUntilTheyAreNot) {
  Flag wanted = command_.add("--wanted", text_, "help").required();
  EXPECT_EQ(refusal_of({}), "--wanted is required");
  wanted.required(false);
  EXPECT_EQ(refusal_of({}), "");
}

TEST_F(FlagsTest, WantACommandWhereTheProgramDoes) {
  const Result<bool> typed = line_.parse(std::vector<const char*>{"program"});
  EXPECT_EQ(typed.error().detail, "A subcommand is required");
  const auto refusal = [&](std::vector<const char*> words) {
    words.insert(words.begin(), "program");
    return line_.parse(words).error().detail;
  };
  EXPECT_EQ(refusal({"rum"}), "'rum' is no command");
  EXPECT_EQ(refusal({"rum", "--int", "5"}), "'rum' is no command");
}

TEST_F(FlagsTest, HelpAndVersionArePrintedAndNothingIsRun) {
  EXPECT_EQ(printed_for({"--version"}), "program 7\n");
  EXPECT_NE(printed_for({"--help"}).find("A program.\nUsage: program"), std::string::npos);
}

TEST_F(FlagsTest, HelpShowsDefaultsRangesAndGroups) {
  command_.add("--late", text_, "first").description("second");
  const std::string help = printed_for({"run", "--help"});
  for (const char* const part :
       {"--text TEXT=its default", "help of text", "--int INT:INT in [1 - 9]",
        "[Option Group: more]", "--list,--also TEXT:{a,b,c} ...", "second"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part << " in\n" << help;
  }
  EXPECT_EQ(help.find("first"), std::string::npos);
}

}  // namespace
}  // namespace stemma
