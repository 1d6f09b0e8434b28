// Unicode text: assembling and repairing UTF-8, walking it, white space, normal forms, lower case.
#include "model/unicode_text.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/prng.h"

namespace stemma {
namespace {

using IllFormed = Utf8Assembler::IllFormed;

std::string assembled(std::string_view bytes, IllFormed ill_formed) {
  Utf8Assembler assembler(ill_formed);
  std::string text;
  for (const char byte : bytes) {
    assembler.push(static_cast<std::uint8_t>(byte), text);
  }
  assembler.flush(text);
  return text;
}

TEST(Utf8Assembler, HoldsACharacterBackUntilItIsWhole) {
  Utf8Assembler assembler(IllFormed::kOnePerByte);
  std::string text;
  for (const int byte : {0xF0, 0x9F, 0xA6}) {
    assembler.push(static_cast<std::uint8_t>(byte), text);
    EXPECT_EQ(text, "");
  }
  assembler.push(0x99, text);
  EXPECT_EQ(text, "🦙");
  assembler.flush(text);
  EXPECT_EQ(text, "🦙");
}

TEST(Utf8Assembler, MarksEachLongestStartOfACharacterOnce) {
  // The example of the Unicode standard, table 3-8.
  EXPECT_EQ(assembled("a\xF1\x80\x80\xE1\x80\xC2"
                      "b\x80"
                      "c\x80\xBF"
                      "d",
                      IllFormed::kOnePerSequence),
            "a���b�c��d");
}

TEST(Utf8Assembler, MarksEveryByteWhereAskedTo) {
  EXPECT_EQ(assembled("\xE5\x8F"
                      "a\xFF",
                      IllFormed::kOnePerByte),
            "��a�");
  EXPECT_EQ(assembled("\xE5\x8F\xAB", IllFormed::kOnePerByte), "叫");
}

TEST(Utf8Assembler, RefusesOverlongFormsSurrogatesAndWhatLiesBeyondUnicode) {
  for (const std::string_view bytes :
       {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xF0\x80\x80\x80"}) {
    EXPECT_FALSE(is_utf8(bytes));
    EXPECT_EQ(utf8_repaired(bytes).size(), 3 * bytes.size()) << "one mark a byte";
  }
  EXPECT_TRUE(is_utf8("\xED\x9F\xBF\xF4\x8F\xBF\xBF"));
}

TEST(Utf8, RepairedTextIsUtf8AndWellFormedTextStays) {
  const std::string text = "Führer, нещо, 叫, 🦙";
  EXPECT_EQ(utf8_repaired(text), text);
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    EXPECT_TRUE(is_utf8(utf8_repaired(text.substr(cut)))) << cut;
    EXPECT_TRUE(is_utf8(utf8_repaired(text.substr(0, cut)))) << cut;
  }
}

TEST(Utf8, WalksByCharacters) {
  const std::string_view text = "aé叫🦙";
  EXPECT_EQ(utf8_next(text, 0), 1u);
  EXPECT_EQ(utf8_next(text, 1), 3u);
  EXPECT_EQ(utf8_next(text, 3), 6u);
  EXPECT_EQ(utf8_next(text, 6), 10u);
  EXPECT_EQ(utf8_code_at(text, 1), U'é');
  EXPECT_EQ(utf8_code_at(text, 3), U'叫');
  EXPECT_EQ(utf8_code_at(text, 6), U'🦙');
  EXPECT_EQ(utf8_floor(text, 5), 3u);
  EXPECT_EQ(utf8_floor(text, 99), text.size());
  EXPECT_EQ(characters_in(text), 4);
  EXPECT_EQ(characters_in(""), 0);
  std::string copy;
  utf8_append(U'🦙', copy);
  EXPECT_EQ(copy, "🦙");
}

TEST(WhiteSpace, IsThatOfUnicode) {
  EXPECT_EQ(leading_space_bytes(" \t\u00A0\u3000x "), 7u);
  EXPECT_EQ(trailing_space_bytes(" x\n\u2028 "), 5u);
  EXPECT_EQ(trailing_space_bytes("\u00A0 "), 3u);
  EXPECT_FALSE(is_white_space(0x180E)) << "no space since Unicode 6.3";
  EXPECT_FALSE(is_white_space(0x200B));
}

TEST(NormalForm, ComposesAndDecomposes) {
  EXPECT_EQ(normal_form("e\u0301", NormalForm::kNfc), "é");
  EXPECT_EQ(normal_form("é", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(normal_form("ﬁ½", NormalForm::kNfc), "ﬁ½");
  EXPECT_EQ(normal_form("ﬁ½", NormalForm::kNfkc), "fi1⁄2");
  EXPECT_EQ(normal_form("각", NormalForm::kNfd).size(), 9u);
  EXPECT_EQ(normal_form(normal_form("각", NormalForm::kNfkd), NormalForm::kNfkc), "각");
  EXPECT_EQ(normal_form("", NormalForm::kNfc), "");
}

// Texts of letters and marks of several classes, against the library's own way to all of it.
TEST(NormalForm, OrdersMarksAsTheStandardSays) {
  const std::u32string alphabet = U"aeo\u0301\u0323\u0327\u0308\u0345\u1100\u1161\u00C5\uFB01x";
  Prng prng(9);
  for (int trial = 0; trial < 500; ++trial) {
    std::string text;
    for (std::int64_t i = prng.below(20); i > 0; --i) {
      utf8_append(alphabet[static_cast<std::size_t>(prng.below(std::ssize(alphabet)))], text);
    }
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.c_str());
    for (const auto& [form, whole] :
         {std::pair(NormalForm::kNfc, &utf8proc_NFC), std::pair(NormalForm::kNfd, &utf8proc_NFD),
          std::pair(NormalForm::kNfkc, &utf8proc_NFKC)}) {
      const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> expected(whole(bytes),
                                                                             &std::free);
      ASSERT_EQ(normal_form(text, form), reinterpret_cast<const char*>(expected.get())) << text;
    }
  }
}

// Half a million marks behind one letter, in the order that is the longest way from the right one.
// Sorting them mark by mark takes minutes.
TEST(NormalForm, TakesAnyNumberOfMarks) {
  constexpr std::size_t kPairs = 250'000;
  std::string text = "x";
  for (std::size_t i = 0; i < kPairs; ++i) text += "\u0301\u0323";
  const std::string normal = normal_form(text, NormalForm::kNfd);
  EXPECT_EQ(normal.size(), text.size());
  EXPECT_EQ(normal.substr(0, 3), "x\u0323");
  EXPECT_TRUE(normal.ends_with("\u0301"));
}

TEST(LowerCase, MapsCharactersOneByOne) {
  EXPECT_EQ(lower_case("ÀBC Ω ΣΑΣ ß"), "àbc ω σασ ß");
  EXPECT_EQ(lower_case("İ"), "i\u0307");
}

}  // namespace
}  // namespace stemma
