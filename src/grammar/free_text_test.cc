#include "grammar/free_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar_texts.h"
#include "model/unicode_text.h"

namespace stemma {
namespace {

using Part = ByteGrammar::Part;

// What the free text is, with `end` behind it.
ByteAutomaton automaton_of_text(const FreeText& text, ByteGrammar& grammar,
                                std::string_view end = "") {
  const Part whole = grammar.rule();
  EXPECT_TRUE(define_free_text(whole, text, grammar).ok());
  return automaton_of(grammar, grammar.sequence({whole, grammar.text(end)}));
}

// All texts of up to `length` of these characters.
std::vector<std::string> texts_of(std::string_view characters, std::size_t length) {
  std::vector<std::string> texts = {""};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() == length) break;
    for (const char character : characters) texts.push_back(texts[i] + character);
  }
  return texts;
}

TEST(FreeText, IsAnyTextWithoutItsMarks) {
  const std::vector<std::string> marks = {"aab", "ba", "cc"};
  ByteGrammar grammar;
  ByteAutomaton automaton = automaton_of_text({.excluded = marks}, grammar);
  for (const std::string& text : texts_of("abcx", 6)) {
    const bool has_one = std::any_of(marks.begin(), marks.end(), [&](const std::string& mark) {
      return text.find(mark) != std::string::npos;
    });
    EXPECT_EQ(accepts(automaton, text), !has_one) << text;
  }
}

TEST(FreeText, HasCharactersOfEveryLength) {
  ByteGrammar grammar;
  ByteAutomaton automaton = automaton_of_text({.excluded = {"｜x", "é"}}, grammar);
  EXPECT_TRUE(accepts(automaton, "｜ü€𝄞\n"));
  EXPECT_FALSE(accepts(automaton, "a｜x"));
  EXPECT_FALSE(accepts(automaton, "é"));
  EXPECT_FALSE(accepts(automaton, "\xC3")) << "half a character";
}

// Whoever looks for the end of such a text finds the one that is meant.
TEST(FreeText, GoesUpToTheFirstEnd) {
  for (const std::string end : {"aa", "aba", "abcab", "b"}) {
    ByteGrammar grammar;
    ByteAutomaton automaton = automaton_of_text({.ends = {end}}, grammar, end);
    for (const std::string& text : texts_of("abc", 7)) {
      const std::size_t first = text.find(end);
      const bool is_one = first != std::string::npos && first + end.size() == text.size();
      EXPECT_EQ(accepts(automaton, text), is_one) << text << " and " << end;
    }
  }
}

TEST(FreeText, GoesOnBehindATriggerAsItSays) {
  ByteGrammar grammar;
  const Part whole = grammar.rule();
  const FreeText text = {
      .triggers = {{"<n>", grammar.sequence({grammar.one_of("0123"), grammar.text(";"), whole})},
                   {"<e>", grammar.text("end")}}};
  ASSERT_TRUE(define_free_text(whole, text, grammar).ok());
  ByteAutomaton automaton = automaton_of(grammar, whole);
  for (const char* const one :
       {"", "some", "<", "<n", "<<n>1;", "a<n>1;b<n>2;", "<e>end", "<n>3;<<e>end", "<n>3;<n"}) {
    EXPECT_TRUE(accepts(automaton, one)) << one;
  }
  for (const char* const none : {"<n>", "<n>4;", "a<n>1", "<e>", "<e>end.", "<n>1;<n>"}) {
    EXPECT_FALSE(accepts(automaton, none)) << none;
  }
}

// The shorter one has come first; one that ends another comes with it.
TEST(FreeText, ATriggerMayBeginOrEndAnother) {
  ByteGrammar grammar;
  const FreeText text = {.triggers = {{"ab", grammar.text("1")},
                                      {"abc", grammar.text("2")},
                                      {"b", grammar.text("3")}}};
  ByteAutomaton automaton = automaton_of_text(text, grammar);
  EXPECT_TRUE(accepts(automaton, "ab1"));
  EXPECT_TRUE(accepts(automaton, "ab3"));
  EXPECT_TRUE(accepts(automaton, "cb3"));
  EXPECT_FALSE(accepts(automaton, "cb1"));
  EXPECT_FALSE(accepts(automaton, "abc2"));
}

TEST(FreeText, ATriggerThatHasAnExcludedMarkDoesNotCome) {
  ByteGrammar grammar;
  const FreeText text = {.triggers = {{"<a>", grammar.text("1")}, {"<b>", grammar.text("2")}},
                         .excluded = {"a>"}};
  ByteAutomaton automaton = automaton_of_text(text, grammar);
  EXPECT_TRUE(accepts(automaton, "<a<b>2"));
  EXPECT_FALSE(accepts(automaton, "<a>1"));
}

// A text of a million characters needs no more than a short one.
TEST(FreeText, HasAFewStates) {
  ByteGrammar grammar;
  ByteAutomaton automaton = automaton_of_text({.excluded = {"</think>"}}, grammar);
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "so </thin ";
  EXPECT_TRUE(accepts(automaton, text));
  EXPECT_LE(automaton.size(), 40U);
}

// Each as large as it may be: they end when the grammar is full, not when all are written.
TEST(FreeText, ManyInOneGrammarAreRefusedWhenItIsFull) {
  std::string mark;
  for (char32_t letter = 0; mark.size() + 3 <= FreeText::kBytesMax; ++letter) {
    utf8_append(0x4E00 + letter, mark);
  }
  ByteGrammar grammar;
  Status defined;
  int written = 0;
  while (defined.ok() && written < 10'000) {
    defined = define_free_text(grammar.rule(), {.excluded = {mark}}, grammar);
    ++written;
  }
  EXPECT_EQ(defined.error().detail, "more than 1048576 parts");
  EXPECT_LT(written, 1'000);
}

TEST(FreeText, TooManyMarksAreRefused) {
  ByteGrammar grammar;
  const FreeText text = {.excluded = {std::string(FreeText::kBytesMax, 'a')}, .ends = {"b"}};
  const Status defined = define_free_text(grammar.rule(), text, grammar);
  ASSERT_FALSE(defined.ok());
  EXPECT_EQ(defined.error().detail, "marks of 1025 bytes (at most 1024)");
}

}  // namespace
}  // namespace stemma
