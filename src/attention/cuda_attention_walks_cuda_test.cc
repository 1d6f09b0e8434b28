// Walks over several partitions and teams of several items, of each kernel of long rows and on a
// GPU of any size: they are there, and give the bits of items that have one partition each.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "attention/attention_steps.h"
#include "attention/cuda_attention.h"
#include "attention/cuda_attention_fixture.h"

namespace stemma {
namespace {

struct WalkCase {
  CudaCase attention;
  AttentionList list = kChunkPairs;
};

class CudaAttentionWalks : public CudaAttentionFixture,
                           public testing::WithParamInterface<WalkCase> {
 protected:
  void SetUp() override {
    CudaAttentionFixture::SetUp();
    if (c_.hopper_chunks || c_.hopper_latent) skip_without_warpgroups();
  }

  const CudaCase& c_ = GetParam().attention;
};

// Else a GPU of many multiprocessors would run these tests, and little of the kernels.
TEST_P(CudaAttentionWalks, HaveSeveralPartitionsAndTeamsOfSeveralItems) {
  AttentionWorld world(c_.world, c_.tokens);
  world.prepare({{0, c_.tokens[0]}});
  const auto attention = make(c_);
  ASSERT_TRUE(attention->plan(stream(), world.batch()).ok());
  const std::span<const AttentionItem> items = attention->items(GetParam().list);
  EXPECT_GT(std::ssize(items) * c_.world.shape.kv_heads, attention->teams(GetParam().list));
  EXPECT_TRUE(std::ranges::any_of(items, [](const AttentionItem& item) {
    return item.end_tile - item.first_tile > kCudaPartitionTiles;
  }));
}

TEST_P(CudaAttentionWalks, HaveTheBitsOfAnyNumberOfMultiprocessors) {
  CudaCase all = c_;
  all.multiprocessors_max = 0;
  const std::vector<Step> steps = sequences_one_by_one(c_.tokens);
  expect_same_bits(attend_all_on_device(all, steps), attend_all_on_device(c_, steps));
}

CudaCase chunks(const std::string& name, std::int64_t tokens) {
  CudaCase c = {.name = name, .world = bf16_world(2, 1, 64), .tokens = {tokens}};
  c.rows_max = tokens;
  return c;
}
CudaCase latent_rows(const std::string& name) {
  CudaCase c = {.name = name, .world = bf16_world(2, 1, 576), .tokens = {530}};
  c.world.shape.latent_dim = 512;
  return c;
}

std::vector<WalkCase> cases_of_warps() {
  std::vector<WalkCase> cases = {{chunks("chunks", 1100)}, {chunks("chunks_over_codes", 1100)}};
  cases[1].attention.world.dtype = DType::kFp8E4M3;
  cases.push_back({latent_rows("latent_rows"), kSharedPairs});
  return cases;
}
std::vector<WalkCase> cases_of_warpgroups() {
  std::vector<WalkCase> cases = {{chunks("chunks", 1100)},
                                 {latent_rows("latent_rows"), kSharedPairs}};
  for (WalkCase& c : cases) c.attention.hopper_chunks = c.attention.hopper_latent = true;
  return cases;
}
std::string name_of(const testing::TestParamInfo<WalkCase>& instance) {
  return instance.param.attention.name;
}

INSTANTIATE_TEST_SUITE_P(Warps, CudaAttentionWalks, testing::ValuesIn(cases_of_warps()), name_of);
INSTANTIATE_TEST_SUITE_P(Hopper, CudaAttentionWalks, testing::ValuesIn(cases_of_warpgroups()),
                         name_of);

}  // namespace
}  // namespace stemma
