// Gathered rows: every value of every rank's part lies in its row and column afterwards, for parts
// that divide and parts that do not, and nothing else is written.
#include "cuda/gathered_rows_cuda.h"

#include <cstdint>
#include <vector>

#include "base/math.h"
#include "device/cuda_fixture.h"

namespace stemma {
namespace {

class GatheredRowsTest : public CudaFixture {
 protected:
  // The whole rows of values that say where they belong, as ranks give them.
  template <typename T>
  void expect_joined(std::int64_t rows, std::int64_t columns, int ranks) {
    SCOPED_TRACE(testing::Message() << rows << " rows of " << columns << " over " << ranks);
    constexpr std::int64_t kBytes = sizeof(T);
    const std::int64_t most = ceil_div<std::int64_t>(columns, ranks);
    const std::int64_t part_bytes = round_up<std::int64_t>(rows * most * kBytes, 16);
    const auto part = static_cast<std::size_t>(part_bytes) / sizeof(T);
    std::vector<T> parts(part * static_cast<std::size_t>(ranks), T{9999});
    std::vector<T> expected(static_cast<std::size_t>(rows * columns));
    for (int rank = 0; rank < ranks; ++rank) {
      std::size_t at = part * static_cast<std::size_t>(rank);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t i = columns * rank / ranks; i < columns * (rank + 1) / ranks; ++i) {
          const auto value = static_cast<T>(row * columns + i);
          parts[at++] = expected[static_cast<std::size_t>(row * columns + i)] = value;
        }
      }
    }
    const CudaMemory from = upload(parts);
    expected.push_back(static_cast<T>(-1));  // what lies behind
    const CudaMemory whole = allocate<T>(expected.size());
    const Status joined = join_gathered_rows(stream(), {.parts = from.bytes(),
                                                        .whole = whole.bytes(),
                                                        .part_bytes = part_bytes,
                                                        .rows = rows,
                                                        .columns = columns,
                                                        .element_bytes = sizeof(T),
                                                        .ranks = ranks});
    ASSERT_TRUE(joined.ok()) << joined.error().detail;
    EXPECT_EQ(download<T>(whole.bytes(), expected.size()), expected);
  }
};

TEST_F(GatheredRowsTest, PartsOfWholeWords) {
  expect_joined<std::uint16_t>(3, 64, 4);
  expect_joined<std::uint32_t>(5, 40, 2);
}

TEST_F(GatheredRowsTest, PartsThatDoNotDivide) {
  expect_joined<std::uint16_t>(4, 7, 2);
  expect_joined<std::uint16_t>(2, 13, 3);
  expect_joined<std::uint16_t>(3, 12, 2);
  expect_joined<std::uint32_t>(3, 291, 4);
}

TEST_F(GatheredRowsTest, RowsThatSeveralTeamsCopy) {
  expect_joined<std::uint32_t>(2, 5000, 2);
  expect_joined<std::uint16_t>(1, 2501, 2);
}

TEST_F(GatheredRowsTest, WhatItCannotDoIsRefused) {
  GatheredRows params = {.part_bytes = 16, .rows = 1, .columns = 8, .element_bytes = 2, .ranks = 2};
  params.element_bytes = 8;
  EXPECT_EQ(join_gathered_rows(stream(), params).error().code, ErrorCode::kInvalidArgument);
  params.element_bytes = 4;
  params.rows = 2;  // more than the parts hold
  EXPECT_EQ(join_gathered_rows(stream(), params).error().code, ErrorCode::kInvalidArgument);
  params.rows = 1;
  params.ranks = 9;
  EXPECT_EQ(join_gathered_rows(stream(), params).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace stemma
