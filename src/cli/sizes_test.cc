// Sizes: what is accepted, what is refused, and how sizes are printed.
#include "cli/sizes.h"

#include <gtest/gtest.h>

namespace stemma {
namespace {

TEST(ParseBytes, AcceptsBinaryUnits) {
  EXPECT_EQ(*parse_bytes("4096", "--kv-bytes"), 4096);
  EXPECT_EQ(*parse_bytes("12B", "--kv-bytes"), 12);
  EXPECT_EQ(*parse_bytes("64KiB", "--kv-bytes"), 65536);
  EXPECT_EQ(*parse_bytes("1.5GiB", "--kv-bytes"), 3 * (std::int64_t{1} << 29));
}

TEST(ParseBytes, RefusesTheRestAndNamesTheFlag) {
  for (const std::string_view text : {"", "GiB", "2GB", "2 GiB", "-1", "nan", "1e99TiB", "0x10"}) {
    const Result<std::int64_t> bytes = parse_bytes(text, "--kv-bytes");
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_EQ(bytes.error().detail.rfind("--kv-bytes wants a size", 0), 0u);
  }
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 30), "3 GiB");
}

}  // namespace
}  // namespace stemma
