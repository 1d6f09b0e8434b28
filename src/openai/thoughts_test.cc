// Thoughts before an answer: taken out of it, the same however the answer was cut into pieces; an
// answer without any stays as it is, byte for byte.
#include "openai/thoughts.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace stemma {
namespace {

using Read = std::pair<std::string, std::string>;  // thoughts, text

Read read_in_pieces(ThoughtPlace place, std::string_view answer, std::size_t piece_bytes) {
  ThoughtReader reader(place);
  ThoughtText read;
  for (std::size_t at = 0; at < answer.size(); at += piece_bytes) {
    reader.push(answer.substr(at, piece_bytes), read);
  }
  reader.finish(read);
  return {read.thoughts, read.text};
}

Read read(ThoughtPlace place, std::string_view answer) {
  const Read whole = read_in_pieces(place, answer, answer.size() + 1);
  for (std::size_t piece_bytes = 1; piece_bytes < 10; ++piece_bytes) {
    EXPECT_EQ(read_in_pieces(place, answer, piece_bytes), whole) << piece_bytes;
  }
  return whole;
}

TEST(Thoughts, AreTakenOutOfTheAnswerThatBeginsWithThem) {
  EXPECT_EQ(read(ThoughtPlace::kBefore, "<think>\nI look.\n\nSo.\n</think>\n\nThe sea."),
            Read("I look.\n\nSo.", "The sea."));
  EXPECT_EQ(read(ThoughtPlace::kBefore, "\n<think>a</think>b"), Read("a", "b"));
}

TEST(Thoughts, GoOnWhereThePromptOpenedThem) {
  EXPECT_EQ(read(ThoughtPlace::kInside, "I look.\n</think>\n\nThe sea.\n"),
            Read("I look.", "The sea.\n"));
}

TEST(Thoughts, BeforeAFormEndWithTheirLine) {
  ThoughtReader reader(ThoughtPlace::kInside, /*has_form=*/true);
  ThoughtText read;
  for (const char* const piece : {"I look.\n</think>", "\n", "\n \n", "The sea."}) {
    reader.push(piece, read);
  }
  EXPECT_EQ(read.thoughts, "I look.");
  EXPECT_EQ(read.text, " \nThe sea.");
}

TEST(Thoughts, ThatNobodyEndedAreAllThereIs) {
  EXPECT_EQ(read(ThoughtPlace::kBefore, "<think>\nI look at </thi"), Read("I look at </thi", ""));
  EXPECT_EQ(read(ThoughtPlace::kInside, "I look. \n"), Read("I look.", ""));
}

TEST(Thoughts, OfNothingAreNone) {
  EXPECT_EQ(read(ThoughtPlace::kBefore, "<think>\n\n</think>\n\nThe sea."), Read("", "The sea."));
  EXPECT_EQ(read(ThoughtPlace::kInside, "</think>The sea."), Read("", "The sea."));
}

TEST(Thoughts, EndWhereTheMarkComesFirst) {
  EXPECT_EQ(read(ThoughtPlace::kInside, "a < b </ think></think>c</think>"),
            Read("a < b </ think>", "c</think>"));
}

TEST(Thoughts, AnAnswerThatBeginsWithAnythingElseHasNone) {
  for (const char* const answer :
       {"", " \n", "The sea.", "\n\nThe <think>sea</think>.", "<thin", "<thinking>a</think>b"}) {
    EXPECT_EQ(read(ThoughtPlace::kBefore, answer), Read("", answer)) << answer;
  }
}

TEST(Thoughts, BehindThemAllIsText) {
  for (const char* const answer : {"", "\n\nThe sea.", "<think>a</think>b"}) {
    EXPECT_EQ(read(ThoughtPlace::kBehind, answer), Read("", answer)) << answer;
  }
}

// Where each piece had all of the space before it looked at again, these would take hours.
TEST(Thoughts, SpaceBesideTheirMarksIsLookedAtOnce) {
  const std::string space(std::size_t{4} << 20, ' ');
  for (const ThoughtPlace place : {ThoughtPlace::kBefore, ThoughtPlace::kInside}) {
    const bool thinks = place == ThoughtPlace::kInside;
    EXPECT_EQ(read_in_pieces(place, space, 4), thinks ? Read() : Read("", space));
    EXPECT_EQ(read_in_pieces(place, "a" + space, 4),
              thinks ? Read("a", "") : Read("", "a" + space));
    const std::string more = "a" + space + "</think" + space + "</think>b";
    EXPECT_EQ(read_in_pieces(place, space + "<think>" + more, 4),
              Read((thinks ? "<think>a" : "a") + space + "</think", "b"));
  }
}

TEST(Thoughts, AReaderSaysWhetherMoreMayCome) {
  ThoughtReader reader(ThoughtPlace::kBefore);
  ThoughtText out;
  EXPECT_TRUE(reader.may_think());
  EXPECT_FALSE(reader.has_thought());
  reader.push("\n<thi", out);
  EXPECT_FALSE(reader.is_decided());
  reader.push("nk>a", out);
  EXPECT_TRUE(reader.is_decided());
  EXPECT_TRUE(reader.may_think());
  EXPECT_TRUE(reader.has_thought());
  reader.push("</think>", out);
  EXPECT_FALSE(reader.may_think());
  EXPECT_TRUE(reader.has_thought());
}

TEST(Thoughts, APromptSaysWhereItsAnswerBegins) {
  EXPECT_EQ(thought_place_behind("<|im_start|>assistant\n"), ThoughtPlace::kBefore);
  EXPECT_EQ(thought_place_behind("assistant\n<think>\n"), ThoughtPlace::kInside);
  EXPECT_EQ(thought_place_behind("<think>\n\n</think>\n\n"), ThoughtPlace::kBehind);
}

TEST(Thoughts, ATemplateSaysWhetherItsModelThinksAndInWhichMarks) {
  const auto begin_of = [](std::string_view chat_template) {
    return thought_marks_of(chat_template).value_or(ThoughtMarks{"none", ""}).begin;
  };
  EXPECT_EQ(begin_of("{{ content.split('</think>')[-1] }}"), "<think>");
  EXPECT_EQ(begin_of("{{ '[THINK]' + block['thinking'] + '[/THINK]' }}"), "[THINK]");
  EXPECT_EQ(begin_of("{% set end = '</seed:think>' %}"), "<seed:think>");
  EXPECT_EQ(begin_of("{{ content.split('</thought>')[-1] }}"), "<thought>");
  EXPECT_EQ(begin_of("{{ message.content }}"), "none");
}

TEST(Thoughts, MayHaveOtherMarks) {
  const ThoughtMarks marks = {"[THINK]", "[/THINK]"};
  EXPECT_EQ(thought_place_behind("[INST]Where?[/INST]", marks), ThoughtPlace::kBefore);
  EXPECT_EQ(thought_place_behind("[/INST][THINK]", marks), ThoughtPlace::kInside);
  EXPECT_EQ(thought_place_behind("[/INST][THINK][/THINK]\n", marks), ThoughtPlace::kBehind);
  ThoughtReader reader(ThoughtPlace::kBefore, /*has_form=*/false, marks);
  ThoughtText read;
  for (const char* const piece : {"[TH", "INK]I ", "look</think>. [", "/THINK]", "\nThe sea."}) {
    reader.push(piece, read);
  }
  EXPECT_EQ(read.thoughts, "I look</think>.");
  EXPECT_EQ(read.text, "The sea.");
}

}  // namespace
}  // namespace stemma
