// CudaAttention: batches planned and computed on a GPU against plain loops in double; the same bits
// whoever a row is computed with; recorded runs.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention_steps.h"
#include "attention/cuda_attention.h"
#include "attention/cuda_attention_fixture.h"

namespace stemma {
namespace {

class CudaAttentionOfABatch : public CudaAttentionFixture,
                              public testing::WithParamInterface<CudaCase> {
 protected:
  static std::uint64_t seed() {
    return static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  }
  static std::vector<Step> mixed_steps() {
    Prng prng(seed());
    return mixed(GetParam().tokens, 2, prng);
  }
};

TEST_P(CudaAttentionOfABatch, IsThatOfTheReference) {
  const CudaCase& c = GetParam();
  AttentionWorld world(c.world, c.tokens);
  const auto attention = make(c);
  for (const Step& step : mixed_steps()) {
    world.prepare(step);
    ASSERT_NO_FATAL_FAILURE(expect_reference(c, *attention, world));
  }
}

TEST_P(CudaAttentionOfABatch, HasBitsThatDoNotDependOnHowItsRowsAreCut) {
  const CudaCase& c = GetParam();
  expect_same_bits(attend_all_on_device(c, mixed_steps()),
                   attend_all_on_device(c, sequences_one_by_one(c.tokens)));
}

std::vector<CudaCase> batch_cases() {
  const auto& world = bf16_world;
  std::vector<CudaCase> cases;
  const auto add = [&](const std::string& name, AttentionCase c) -> CudaCase& {
    cases.push_back({.name = name, .world = std::move(c), .tokens = {70, 5, 130}});
    return cases.back();
  };
  add("grouped_heads", world(4, 2, 64)).tokens = {70, 530};
  add("rows_of_f32", world(4, 2, 64)).row_dtype = DType::kF32;
  CudaCase& half = add("rows_and_pool_of_f16", world(4, 2, 64));
  half.row_dtype = half.world.dtype = DType::kF16;
  add("rows_of_f16_over_bf16", world(4, 2, 64)).row_dtype = DType::kF16;
  add("pages_of_one", world(4, 2, 64)).world.page_size = 1;
  add("pages_of_64", world(4, 2, 64)).world.page_size = 64;
  add("pages_by_page", world(4, 2, 64)).world.layout = KvLayout::kPageFirst;
  add("as_many_kv_heads", world(2, 2, 64));
  add("three_query_heads_each", world(6, 2, 64));
  add("many_query_heads", world(20, 1, 32));
  add("more_query_heads_than_an_item_has", world(71, 1, 32)).tokens = {12, 5};
  add("more_query_heads_than_any_item_has", world(130, 1, 32)).tokens = {9, 5};
  add("head_dim_128", world(4, 1, 128)).tokens = {70, 5};
  add("head_dim_256", world(2, 1, 256)).tokens = {70, 5};
  CudaCase& plain = add("pool_of_f32", world(4, 2, 64));
  plain.row_dtype = plain.world.dtype = DType::kF32;
  plain.tokens = {5, 530};
  add("pool_of_f32_and_rows_of_bf16", world(20, 1, 32)).world.dtype = DType::kF32;
  add("pool_of_f32_with_head_dim_80", world(3, 1, 80)).world.dtype = DType::kF32;
  add("pool_of_f32_with_head_dim_256", world(2, 1, 256)).world.dtype = DType::kF32;
  CudaCase& plain_window = add("pool_of_f32_with_a_window", world(4, 2, 64));
  plain_window.world.dtype = DType::kF32;
  plain_window.world.shape.window_tokens = 37;
  plain_window.world.shape.score_cap = 5;
  plain_window.tokens = {70, 600};
  for (const DType dtype : {DType::kFp8E4M3, DType::kFp8E5M2, DType::kInt8}) {
    CudaCase& codes = add("codes_of_" + std::string(dtype_name(dtype)), world(4, 2, 64));
    codes.world.dtype = dtype;
    if (dtype == DType::kFp8E4M3) codes.tokens = {70, 530};
  }
  CudaCase& pages = add("codes_by_page", world(4, 1, 128));
  pages.world.dtype = DType::kFp8E4M3;
  pages.world.layout = KvLayout::kPageFirst;
  pages.world.page_size = 3;
  add("codes_of_head_dim_80", world(4, 2, 80)).world.dtype = DType::kInt8;
  CudaCase& wide_rows = add("codes_and_rows_of_f32", world(4, 2, 64));
  wide_rows.world.dtype = DType::kFp8E4M3;
  wide_rows.row_dtype = DType::kF32;
  CudaCase& half_rows = add("codes_and_rows_of_f16", world(6, 2, 128));
  half_rows.world.dtype = DType::kInt8;
  half_rows.row_dtype = DType::kF16;
  CudaCase& seen = add("codes_with_a_window_and_caps", world(4, 2, 64));
  seen.world.dtype = DType::kFp8E5M2;
  seen.world.shape.window_tokens = 37;
  seen.world.shape.score_cap = 5;
  seen.tokens = {70, 600};
  add("codes_of_head_dim_256", world(2, 1, 256)).world.dtype = DType::kInt8;
  CudaCase& partitions = add("three_partitions", world(2, 1, 64));
  partitions.tokens = {1100};
  partitions.rows_max = 1100;
  CudaCase& code_partitions = add("codes_in_three_partitions", world(2, 1, 64));
  code_partitions.world.dtype = DType::kFp8E4M3;
  code_partitions.tokens = {1100};
  code_partitions.rows_max = 1100;
  CudaCase& window = add("window", world(4, 2, 64));
  window.world.shape.window_tokens = 37;
  window.tokens = {70, 600};
  add("capped_scores", world(4, 2, 64)).world.shape.score_cap = 5;
  return cases;
}

INSTANTIATE_TEST_SUITE_P(KeysAndValues, CudaAttentionOfABatch, testing::ValuesIn(batch_cases()),
                         [](const auto& instance) { return instance.param.name; });

std::vector<CudaCase> latent_cases() {
  std::vector<CudaCase> cases;
  const auto add = [&](const std::string& name, std::int64_t query_heads, std::int64_t head_dim,
                       std::int64_t latent_dim) -> CudaCase& {
    CudaCase c;
    c.name = name;
    c.tokens = {70, 5};
    c.world.shape = {.query_heads = query_heads,
                     .kv_heads = 1,
                     .head_dim = head_dim,
                     .scale = 0.125f,
                     .latent_dim = latent_dim};
    c.world.dtype = DType::kBF16;
    cases.push_back(c);
    return cases.back();
  };
  add("of_96", 4, 96, 64);
  add("of_f32", 4, 96, 64).world.dtype = DType::kF32;
  add("of_int8", 4, 96, 64).world.dtype = DType::kInt8;
  add("of_576", 4, 576, 512);
  CudaCase& heads = add("of_576_and_many_heads", 70, 576, 512);
  heads.tokens = {3};
  heads.world.dtype = DType::kF16;
  add("of_320", 20, 320, 256).tokens = {9};
  add("of_f32_and_576", 4, 576, 512).world.dtype = DType::kF32;
  add("of_f32_and_320", 9, 320, 264).world.dtype = DType::kF32;
  add("of_int8_and_576", 4, 576, 512).world.dtype = DType::kInt8;
  add("of_e4m3_and_320", 4, 320, 256).world.dtype = DType::kFp8E4M3;
  CudaCase& codes = add("of_e5m2_and_576_and_many_heads", 70, 576, 512);
  codes.tokens = {3};
  codes.world.dtype = DType::kFp8E5M2;
  return cases;
}

INSTANTIATE_TEST_SUITE_P(LatentRows, CudaAttentionOfABatch, testing::ValuesIn(latent_cases()),
                         [](const auto& instance) { return instance.param.name; });

class CudaAttentionTest : public CudaAttentionFixture {
 protected:
  static CudaCase plain() {
    CudaCase c;
    c.world.dtype = DType::kBF16;
    c.tokens = {1100, 40, 600};
    return c;
  }
};

TEST_F(CudaAttentionTest, HasTheSameBitsWhereThereIsLittleRoomForSums) {
  CudaCase c = plain();
  c.rows_max = 3;
  const auto decode = [&](std::int64_t sums_bytes_max) {
    c.sums_bytes_max = sums_bytes_max;
    AttentionWorld world(c.world, c.tokens);
    world.prepare({{0, 1099}, {1, 39}, {2, 599}});
    world.prepare({{0, 1}, {1, 1}, {2, 1}});
    const auto attention = make(c);
    return Outputs{attend(c, *attention, world)};
  };
  const std::int64_t sum_bytes = 4 * (64 + 2) * 4;
  const Outputs roomy = decode(6 * sum_bytes);
  expect_same_bits(decode(4 * sum_bytes), roomy);
  expect_same_bits(decode(0), roomy);
}

// Five sequences, of which four begin alike, three of them for longer, and one row of each to
// decode.
CudaCase shared_case(DType dtype, std::int64_t query_heads) {
  CudaCase c;
  c.world.shape = {.query_heads = query_heads, .kv_heads = 1, .head_dim = 64, .scale = 0.125f};
  c.world.dtype = dtype;
  c.tokens = {1100, 1030, 1300, 530, 40};
  c.world.shared = {{1, 0, 1024}, {2, 0, 1024}, {3, 0, 512}};
  return c;
}

TEST_F(CudaAttentionTest, HasTheSameBitsWhetherRowsThatShareABeginAreComputedTogether) {
  for (const DType dtype : {DType::kBF16, DType::kInt8, DType::kF32}) {
    for (const std::int64_t query_heads : {2, 9, 20}) {
      CudaCase c = shared_case(dtype, query_heads);
      AttentionWorld world(c.world, c.tokens);
      world.prepare({{0, 1099}, {1, 1029}, {2, 1299}, {3, 529}, {4, 39}});
      world.prepare({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}});
      const Outputs together = {attend(c, *make(c), world)};
      c.share_prefixes = false;
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << query_heads << " heads");
      expect_same_bits(together, {attend(c, *make(c), world)});
    }
  }
}

TEST_F(CudaAttentionTest, ComputesLaterBatchesOfABucketFromOneRecording) {
  CudaCase c = plain();
  c.tokens = {530, 40, 700};
  c.world.shared = {{2, 0, 512}};
  AttentionWorld world(c.world, c.tokens);
  world.prepare({{0, 520}, {1, 10}, {2, 660}});
  const auto attention = make(c);
  constexpr std::size_t kBucketRows = 3;
  const std::size_t row = static_cast<std::size_t>(4 * 64);
  const CudaMemory q = allocate<std::uint16_t>(kBucketRows * row);
  const CudaMemory out = allocate<std::uint16_t>(kBucketRows * row);
  // The host's pool lies where it lies; what is stored in it is copied to one place of the device.
  const DeviceLayer layer = upload_layer(world.layer());
  CudaGraph graph;
  for (const Step& step : std::vector<Step>{{{0, 1}}, {{0, 1}, {1, 1}, {2, 1}}, {{2, 1}, {0, 1}}}) {
    world.prepare(step);
    const KvBatch batch = world.batch();
    const DeviceLayer now = upload_layer(world.layer());
    const CudaMemory queries = upload(as_rows(c.row_dtype, world.queries()));
    ASSERT_TRUE(stream().copy(layer.k.bytes(), now.k.bytes(), now.k.size_bytes()).ok());
    ASSERT_TRUE(stream().copy(layer.v.bytes(), now.v.bytes(), now.v.size_bytes()).ok());
    ASSERT_TRUE(stream().copy(q.bytes(), queries.bytes(), queries.size_bytes()).ok());
    ASSERT_TRUE(stream().fill(out.bytes(), 0xFF, out.size_bytes()).ok());
    ASSERT_TRUE(attention->plan_decode(stream(), batch, kBucketRows).ok());
    if (graph.empty()) {
      ASSERT_TRUE(stream().begin_recording().ok());
      ASSERT_TRUE(attention->run(stream(), layer.view, q.bytes(), out.bytes()).ok());
      auto recorded = stream().end_recording();
      ASSERT_TRUE(recorded.ok());
      graph = std::move(recorded).value();
    }
    ASSERT_TRUE(stream().replay(graph).ok());
    const auto actual = download<std::byte>(out.bytes(), kBucketRows * row * 2);
    const auto all = from_rows(c.row_dtype, actual);
    const std::vector<float> wanted = attend(c, *attention, world);
    expect_same_bits({{all.begin(), all.begin() + static_cast<std::ptrdiff_t>(wanted.size())}},
                     {wanted});
    for (std::size_t i = 2 * wanted.size(); i < actual.size(); ++i) {
      ASSERT_EQ(actual[i], std::byte{0xFF}) << "a row beyond the batch was written";
    }
  }
}

TEST_F(CudaAttentionTest, PlansTheNextStepsWhileEarlierOnesAreStillToBeComputed) {
  CudaCase c = plain();
  c.tokens = {9, 4};
  AttentionWorld world(c.world, c.tokens);
  const auto attention = make(c);
  const std::vector<Step> steps = {{{0, 5}}, {{1, 2}, {0, 1}}, {{0, 1}, {1, 1}}, {{0, 2}}};
  std::vector<DeviceLayer> layers;
  std::vector<CudaMemory> queries, outs;
  std::vector<std::vector<float>> wanted;
  for (const Step& step : steps) {
    world.prepare(step);
    wanted.push_back(expected(c, world));
    layers.push_back(upload_layer(world.layer()));
    queries.push_back(upload(as_rows(c.row_dtype, world.queries())));
    outs.push_back(allocate<std::uint16_t>(wanted.back().size()));
  }
  ASSERT_TRUE(stream().synchronize().ok());
  AttentionWorld again(c.world, c.tokens);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    again.prepare(steps[i]);
    ASSERT_TRUE(attention->plan(stream(), again.batch()).ok());
    ASSERT_TRUE(attention->run(stream(), layers[i].view, queries[i].bytes(), outs[i].bytes()).ok());
  }
  for (std::size_t step = 0; step < outs.size(); ++step) {
    const auto actual =
        from_rows(c.row_dtype, download<std::byte>(outs[step].bytes(), wanted[step].size() * 2));
    for (std::size_t at = 0; at < actual.size(); ++at) {
      ASSERT_NEAR(actual[at], wanted[step][at], tolerance(c)) << "step " << step;
    }
  }
}

TEST_F(CudaAttentionTest, RefusesWhatItHasNoKernelsFor) {
  const CudaCase c = plain();
  const auto code = [&](const AttentionShape& shape, const CudaAttentionOptions& options) {
    auto made = CudaAttention::create(device(), stream(), shape, limits_of(c), options);
    EXPECT_FALSE(made.ok());
    return made.ok() ? ErrorCode::kInternal : made.error().code;
  };
  const CudaAttentionOptions options = {.page_size = 16};
  CudaAttentionOptions other = options;
  other.row_dtype = DType::kInt8;
  EXPECT_EQ(code(c.world.shape, other), ErrorCode::kInvalidArgument);
  other = options;
  other.page_size = 0;
  EXPECT_EQ(code(c.world.shape, other), ErrorCode::kInvalidArgument);
  other = options;
  other.multiprocessors_max = -1;
  EXPECT_EQ(code(c.world.shape, other), ErrorCode::kInvalidArgument);
  AttentionShape shape = c.world.shape;
  shape.query_heads = 3;
  EXPECT_EQ(code(shape, options), ErrorCode::kInvalidArgument);
  shape = c.world.shape;
  shape.head_dim = 72;  // codes of a row are not whole pieces of 16 bytes
  other = options;
  other.kv_dtype = DType::kInt8;
  EXPECT_EQ(code(shape, other), ErrorCode::kUnsupported);
  for (const DType dtype : {DType::kInt8, DType::kF32, DType::kBF16}) {
    other.kv_dtype = dtype;
    shape = {.query_heads = 4, .kv_heads = 1, .head_dim = 592, .scale = 1, .latent_dim = 512};
    EXPECT_EQ(code(shape, other), ErrorCode::kUnsupported);
    shape = {.query_heads = 4, .kv_heads = 1, .head_dim = 576, .scale = 1, .latent_dim = 528};
    EXPECT_EQ(code(shape, other), ErrorCode::kUnsupported);
  }
}

TEST_F(CudaAttentionTest, RefusesBatchesAndLayersOtherThanAgreed) {
  CudaCase c = plain();
  c.tokens = {20, 20};
  AttentionWorld world(c.world, c.tokens);
  const auto attention = make(c);
  world.prepare({{0, 5}, {1, 1}});
  EXPECT_EQ(attention->plan_decode(stream(), world.batch(), 4).error().code,
            ErrorCode::kInvalidArgument);
  world.prepare({{0, 1}, {1, 1}});
  EXPECT_EQ(attention->plan_decode(stream(), world.batch(), 1).error().code,
            ErrorCode::kInvalidArgument);
  ASSERT_TRUE(attention->plan(stream(), world.batch()).ok());
  KvLayerView layer = world.layer();
  layer.page_size = 8;
  EXPECT_EQ(attention->run(stream(), layer, nullptr, nullptr).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace stemma
