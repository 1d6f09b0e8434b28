// LineReader: lines whole across the pieces in which a file is read, and none longer than allowed.
#include "replay/line_reader.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

using Outcome = LineReader::Outcome;

LineReader reader_of(const std::string& text, std::size_t line_bytes_max) {
  const std::string path = testing::TempDir() + "stemma_line_reader_test.txt";
  std::ofstream(path, std::ios::binary) << text;
  return *LineReader::open(path, line_bytes_max);
}

TEST(LineReader, GivesLinesWithTheirNumbers) {
  LineReader reader = reader_of("one\n\n \t\r\nfour", 100);
  std::string_view line;
  EXPECT_EQ(*reader.next(line), Outcome::kLine);
  EXPECT_EQ(line, "one");
  EXPECT_EQ(reader.line_number(), 1);
  EXPECT_EQ(*reader.next(line), Outcome::kLine);
  EXPECT_EQ(line, "four");
  EXPECT_EQ(reader.line_number(), 4);
  EXPECT_EQ(*reader.next(line), Outcome::kEnd);
}

TEST(LineReader, KeepsALineWholeThatIsReadInPieces) {
  const std::string longest(200'000, 'x');  // several reads
  LineReader reader = reader_of("a\n" + longest + "\nb\n", 1'000'000);
  std::string_view line;
  EXPECT_EQ(*reader.next(line), Outcome::kLine);
  EXPECT_EQ(*reader.next(line), Outcome::kLine);
  EXPECT_EQ(line, longest);
  EXPECT_EQ(*reader.next(line), Outcome::kLine);
  EXPECT_EQ(line, "b");
  EXPECT_EQ(*reader.next(line), Outcome::kEnd);
}

TEST(LineReader, PassesOverALineThatIsTooLong) {
  LineReader reader = reader_of("12345678\n1234567\n" + std::string(100'000, 'x') + "\nlast", 8);
  std::string_view line;
  EXPECT_EQ(*reader.next(line), Outcome::kTooLong);
  EXPECT_EQ(*reader.next(line), Outcome::kLine);
  EXPECT_EQ(line, "1234567");
  EXPECT_EQ(*reader.next(line), Outcome::kTooLong);
  EXPECT_EQ(*reader.next(line), Outcome::kLine);
  EXPECT_EQ(line, "last");
  EXPECT_EQ(reader.line_number(), 4);
}

TEST(LineReader, KeepsBytesOfZero) {
  LineReader reader = reader_of(std::string("a\0b\n", 4), 100);
  std::string_view line;
  EXPECT_EQ(*reader.next(line), Outcome::kLine);
  EXPECT_EQ(line, std::string_view("a\0b", 3));
}

TEST(LineReader, HasNothingOfAnEmptyFile) {
  LineReader reader = reader_of("", 100);
  std::string_view line;
  EXPECT_EQ(*reader.next(line), Outcome::kEnd);
}

}  // namespace
}  // namespace stemma
