// Chunks and latent rows by products of warpgroups, on a GPU that has them and on the emulated one:
// against plain loops in double, and against the bits that the kernels of single warps give.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention_steps.h"
#include "attention/cuda_attention.h"
#include "attention/cuda_attention_fixture.h"

namespace stemma {
namespace {

class HopperAttention : public CudaAttentionFixture, public testing::WithParamInterface<CudaCase> {
 protected:
  void SetUp() override {
    CudaAttentionFixture::SetUp();
    skip_without_warpgroups();
  }

  // Walks that begin within a partition keep its sums soon, where queries were.
  simt::Machine::Options machine_options() const override {
    simt::Machine::Options options = CudaAttentionFixture::machine_options();
    if (GetParam().world.shape.window_tokens > 0) options.watch = simt::Watch::kAlways;
    return options;
  }

  // First some rows, then the rest: a chunk that begins within a tile.
  static std::vector<Step> two_chunks() {
    std::vector<Step> steps;
    for (std::size_t s = 0; s < GetParam().tokens.size(); ++s) {
      const std::int64_t first = GetParam().tokens[s] * 2 / 7 + 1;
      steps.push_back({{s, first}});
      steps.push_back({{s, GetParam().tokens[s] - first}});
    }
    return steps;
  }
  // Now and then a row by itself, from the first to the last.
  static std::vector<Step> rows_alone() {
    std::vector<Step> steps;
    for (std::size_t s = 0; s < GetParam().tokens.size(); ++s) {
      const std::int64_t tokens = GetParam().tokens[s];
      for (std::int64_t done = 0; done < tokens;) {
        const std::int64_t between = std::min(tokens / 10, tokens - done - 1);
        steps.push_back({{s, 1}});
        if (between > 0) steps.push_back({{s, between}});
        done += 1 + between;
      }
    }
    return steps;
  }

  static CudaCase by_warpgroups() {
    CudaCase c = GetParam();
    c.hopper_chunks = c.hopper_latent = true;
    return c;
  }
};

TEST_P(HopperAttention, IsThatOfTheReference) {
  const CudaCase c = by_warpgroups();
  AttentionWorld world(c.world, c.tokens);
  const auto attention = make(c);
  ASSERT_TRUE(attention->has_hopper_chunks() || attention->has_hopper_latent());
  for (const Step& step : two_chunks()) {
    world.prepare(step);
    ASSERT_NO_FATAL_FAILURE(expect_reference(c, *attention, world));
  }
}

// On a GPU this says whether both kinds of products add in the same order.
TEST_P(HopperAttention, HasTheBitsOfTheOtherKernels) {
  expect_same_bits(attend_all_on_device(by_warpgroups(), sequences_one_by_one(GetParam().tokens)),
                   attend_all_on_device(GetParam(), sequences_one_by_one(GetParam().tokens)));
}

TEST_P(HopperAttention, HasBitsThatDoNotDependOnWhereChunksBegin) {
  const CudaCase c = by_warpgroups();
  expect_same_bits(attend_all_on_device(c, two_chunks()),
                   attend_all_on_device(c, sequences_one_by_one(GetParam().tokens)));
}

// Single rows of up to 16 query heads are never computed by warpgroups: I13 stands or falls with
// this.
TEST_P(HopperAttention, HasTheBitsOfRowsAlone) {
  const CudaCase c = by_warpgroups();
  expect_same_bits(attend_all_on_device(c, sequences_one_by_one(GetParam().tokens)),
                   attend_all_on_device(c, rows_alone()));
}

std::vector<CudaCase> chunk_cases() {
  const auto& world = bf16_world;
  std::vector<CudaCase> cases;
  const auto add = [&](const std::string& name, AttentionCase c,
                       std::vector<std::int64_t> tokens) -> CudaCase& {
    cases.push_back({.name = name, .world = std::move(c), .tokens = std::move(tokens)});
    return cases.back();
  };
  add("head_dim_64", world(4, 2, 64), {70, 150});
  add("head_dim_128", world(4, 1, 128), {70, 131});
  CudaCase& half = add("rows_and_pool_of_f16", world(4, 2, 128), {90});
  half.row_dtype = half.world.dtype = DType::kF16;
  add("rows_of_f32", world(8, 2, 64), {40}).row_dtype = DType::kF32;
  add("pages_of_one", world(4, 1, 64), {100}).world.page_size = 1;
  add("pages_by_page", world(4, 1, 64), {100}).world.layout = KvLayout::kPageFirst;
  add("as_many_kv_heads", world(2, 2, 64), {300});
  add("three_query_heads_each", world(6, 2, 64), {60});
  add("more_query_heads_than_an_item_has", world(71, 1, 64), {7});
  add("more_query_heads_than_any_item_has", world(130, 1, 64), {5});
  add("head_dim_32", world(8, 1, 32), {50});
  add("head_dim_80", world(8, 1, 80), {50});
  add("three_partitions", world(2, 1, 64), {1100}).rows_max = 1100;
  add("partitions_of_head_dim_128", world(1, 1, 128), {700});
  CudaCase& window = add("window", world(4, 1, 64), {600});
  window.world.shape.window_tokens = 37;
  add("capped_scores", world(4, 1, 64), {90}).world.shape.score_cap = 5;
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Chunks, HopperAttention, testing::ValuesIn(chunk_cases()),
                         [](const auto& instance) { return instance.param.name; });

std::vector<CudaCase> latent_cases() {
  std::vector<CudaCase> cases;
  const auto add = [&](const std::string& name, std::int64_t query_heads, std::int64_t head_dim,
                       std::vector<std::int64_t> tokens) -> CudaCase& {
    AttentionCase c = bf16_world(query_heads, 1, head_dim);
    c.shape.latent_dim = head_dim - 64;
    cases.push_back({.name = name, .world = std::move(c), .tokens = std::move(tokens)});
    return cases.back();
  };
  add("of_576", 4, 576, {70, 5});
  add("two_items_a_row", 70, 576, {5});
  add("half_a_group_of_values", 20, 320, {9});
  add("no_whole_panel", 8, 328, {20});
  CudaCase& half = add("rows_and_pool_of_f16", 16, 576, {10, 6});
  half.row_dtype = half.world.dtype = DType::kF16;
  add("rows_of_f32", 8, 576, {17}).row_dtype = DType::kF32;
  add("pages_of_one", 8, 576, {33}).world.page_size = 1;
  add("pages_by_page", 8, 576, {33}).world.layout = KvLayout::kPageFirst;
  add("partitions_that_are_items", 1, 576, {530});
  add("items_of_two_partitions", 2, 576, {530});  // so many that all teams are busy
  return cases;
}

INSTANTIATE_TEST_SUITE_P(LatentRows, HopperAttention, testing::ValuesIn(latent_cases()),
                         [](const auto& instance) { return instance.param.name; });

using HopperChunks = CudaAttentionFixture;
using HopperLatent = CudaAttentionFixture;

TEST_F(HopperChunks, AreLeftAloneWhereNobodyWantsThem) {
  EXPECT_FALSE(make(CudaCase())->has_hopper_chunks());
}

TEST_F(HopperChunks, LeaveRowsThatTheyHaveNoKernelForToOthers) {
  CudaCase c;
  c.hopper_chunks = true;
  c.world.dtype = DType::kInt8;
  EXPECT_FALSE(make(c)->has_hopper_chunks());
  c.world.dtype = DType::kBF16;
  c.world.shape.head_dim = 256;
  EXPECT_FALSE(make(c)->has_hopper_chunks());
}

TEST_F(HopperLatent, IsLeftAloneWhereNobodyWantsIt) {
  CudaCase c;
  c.world = bf16_world(4, 1, 576);
  c.world.shape.latent_dim = 512;
  EXPECT_FALSE(make(c)->has_hopper_latent());
}

TEST_F(HopperLatent, LeavesCodesAndShortRowsToOthers) {
  CudaCase c;
  c.hopper_latent = true;
  c.world = bf16_world(4, 1, 576);
  c.world.shape.latent_dim = 512;
  c.world.dtype = DType::kInt8;
  EXPECT_FALSE(make(c)->has_hopper_latent());
  c.world.dtype = DType::kBF16;
  c.world.shape.head_dim = 96;
  c.world.shape.latent_dim = 64;
  EXPECT_FALSE(make(c)->has_hopper_latent());
}

}  // namespace
}  // namespace stemma
