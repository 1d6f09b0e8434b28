// Covers that the calls of a request allocate nothing in C either (I10).
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/heap_counter.h"
#include "stemma/c.h"

namespace stemma {
namespace {

TEST(CAllocation, TheLifeOfARequestAllocatesNothing) {
  stemma_cache_options options;
  stemma_cache_options_init(&options, sizeof(options));
  options.pages = 64;
  stemma_cache* cache = nullptr;
  ASSERT_EQ(stemma_cache_open(&options, nullptr, &cache), STEMMA_OK);
  const std::array<std::uint8_t, 32> digest = {};
  std::int32_t ns = -1;
  ASSERT_EQ(stemma_namespace_open(cache, digest.data(), &ns), STEMMA_OK);
  std::vector<std::int32_t> tokens(200);
  std::iota(tokens.begin(), tokens.end(), 0);

  const std::int64_t before = heap_allocations.load();
  for (std::int32_t life = 0; life < 100; ++life) {
    tokens[100] = life;  // every text shares the beginning, and evicts others in the end
    std::int64_t cached = 0;
    EXPECT_EQ(stemma_probe(cache, ns, tokens.data(), tokens.size(), &cached), STEMMA_OK);
    stemma_sequence* sequence = nullptr;
    EXPECT_EQ(stemma_begin(cache, ns, tokens.data(), tokens.size(), &sequence), STEMMA_OK);
    EXPECT_EQ(stemma_reserve(sequence, 200), STEMMA_OK);
    EXPECT_EQ(stemma_commit(sequence, tokens.data(), 128), STEMMA_OK);
    const std::int64_t computed = 200;
    const std::int32_t* table[3] = {};
    EXPECT_EQ(stemma_batch_pages(cache, &sequence, &computed, 1, &table[0], &table[1], &table[2]),
              STEMMA_OK);
    if (life % 2 == 0) {
      EXPECT_EQ(stemma_finish(sequence, tokens.data(), 200), STEMMA_OK);
    } else {
      stemma_release(sequence);
    }
  }
  EXPECT_EQ(heap_allocations.load() - before, 0);
  stemma_cache_close(cache);
}

}  // namespace
}  // namespace stemma
