// CudaAttention with a dial: tokens chosen by their labels as the CPU chooses them, attention to
// what was chosen against plain loops in double, and the same bits whoever a row is computed with
// and however choices are cut into waves (I13).
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "attention/attention_steps.h"
#include "attention/choice_fixture.h"
#include "attention/cuda_attention_fixture.h"
#include "attention/cuda_token_choice.h"
#include "attention/reference_sparse_attention.h"
#include "attention/stored_element.h"

namespace stemma {
namespace {

constexpr SparseDial kQuarter = {.dense_tokens = 40, .kept_tokens = 1, .kept_of = 4};

// Of one row and KV head.
struct Choice {
  std::int64_t request = 0;
  std::int64_t row = 0;
  std::int64_t kv_head = 0;
  std::vector<std::int32_t> positions = {};
};

class CudaSparseFixture : public CudaAttentionFixture {
 protected:
  static CudaCase sparse(std::int64_t group, DType dtype = DType::kBF16) {
    CudaCase c;
    c.world.shape.query_heads = 2 * group;
    c.world.dial = kQuarter;
    c.world.dtype = c.row_dtype = dtype;
    c.tokens = {70, 5, 61};
    return c;
  }

  TokenChoiceLimits choice_limits(const CudaCase& c) {
    return {.dial = *c.world.dial,
            .rows_max = c.rows_max,
            .context_tokens_max = limits_of(c).context_tokens_max,
            .bytes_max = c.choice_bytes_max,
            .multiprocessors = device().traits().multiprocessors};
  }

  // What the rows of a batch choose on the device, row by row, head by head.
  std::vector<Choice> choices(const CudaCase& c, const AttentionWorld& world) {
    const KvBatch batch = world.batch();
    const TokenChoiceLimits limits = choice_limits(c);
    const std::int64_t wave_rows = CudaTokenChoice::wave_rows(c.world.shape, limits);
    CudaAttentionPlan plan(c.world.shape, {.batch = limits_of(c),
                                           .page_size = c.world.page_size,
                                           .table_pages_max = CudaAttentionPlan::table_pages(
                                               limits_of(c), c.world.page_size),
                                           .sums_max = CudaAttentionPlan::sums_wanted(limits_of(c)),
                                           .dial = *c.world.dial,
                                           .wave_choices = wave_rows});
    EXPECT_TRUE(plan.cut(batch).ok());
    PinnedMemory pinned = pinned_bytes(static_cast<std::size_t>(plan.image_bytes_max()));
    const auto bytes = static_cast<std::size_t>(plan.write(batch, pinned.bytes()));
    const CudaMemory image = upload(std::span<const std::byte>(pinned.bytes(), bytes));
    const DeviceLayer layer = upload_layer(world.layer());
    const CudaMemory q = upload(as_rows(c.row_dtype, world.queries()));
    auto choice = CudaTokenChoice::create(device(), stream(), c.world.shape, limits);
    EXPECT_TRUE(choice.ok());
    AttentionParams params = {.image = image.bytes(),
                              .kv_dtype = c.world.dtype,
                              .page_size = static_cast<std::int32_t>(c.world.page_size),
                              .query_heads = static_cast<std::int32_t>(c.world.shape.query_heads),
                              .kv_heads = static_cast<std::int32_t>(c.world.shape.kv_heads),
                              .head_dim = static_cast<std::int32_t>(c.world.shape.head_dim),
                              .scale = c.world.shape.scale,
                              .q = q.bytes(),
                              .row_dtype = c.row_dtype};
    std::vector<Choice> all;
    const auto rows = std::ssize(plan.choices());
    for (std::int64_t wave = 0; wave * wave_rows < rows; ++wave) {
      choice.value().place(params, wave);
      EXPECT_TRUE(choice.value().choose(stream(), params, layer.view).ok());
      const std::int64_t here = std::min(wave_rows, rows - wave * wave_rows);
      const auto slots = download<std::int32_t>(
          params.chosen, static_cast<std::size_t>(here * params.kv_heads * params.chosen_max));
      append_choices(plan.choices().subspan(static_cast<std::size_t>(wave * wave_rows)), slots,
                     params, batch, all);
    }
    return all;
  }

  // Slots as positions of their requests.
  static void append_choices(std::span<const ChoosingRow> rows,
                             const std::vector<std::int32_t>& slots, const AttentionParams& params,
                             const KvBatch& batch, std::vector<Choice>& all) {
    const std::size_t heads = slots.size() / static_cast<std::size_t>(params.chosen_max);
    for (std::size_t i = 0; i < heads; ++i) {
      const ChoosingRow& row = rows[i / static_cast<std::size_t>(params.kv_heads)];
      Choice choice = {.row = row.row, .kv_head = static_cast<std::int64_t>(i) % params.kv_heads};
      while (batch.row_indptr[static_cast<std::size_t>(choice.request) + 1] <= row.row) {
        ++choice.request;
      }
      const auto pages = batch.page_table.pages_of(choice.request);
      for (std::int32_t k = 0; k < row.kept_tokens; ++k) {
        const std::int32_t slot =
            slots[i * static_cast<std::size_t>(params.chosen_max) + static_cast<std::size_t>(k)];
        const auto page = std::find(pages.begin(), pages.end(), PageId(slot / params.page_size));
        EXPECT_NE(page, pages.end()) << "slot " << slot << " is another request's";
        choice.positions.push_back(static_cast<std::int32_t>(page - pages.begin()) *
                                       params.page_size +
                                   slot % params.page_size);
      }
      all.push_back(std::move(choice));
    }
  }

  // A query's attention to some of its tokens.   [head_dim]
  static std::vector<double> attend_in_double(const KvLayerView& layer, const KvBatch& batch,
                                              const Choice& choice, const float* q, float scale) {
    std::vector<double> weights;
    std::vector<double> sums(static_cast<std::size_t>(layer.head_dim));
    const auto row_of = [&](std::int32_t token) {
      return stored_row(layer, batch.page_table.slot(choice.request, token), choice.kv_head);
    };
    for (const std::int32_t token : choice.positions) {
      double score = 0;
      for (std::int64_t i = 0; i < layer.head_dim; ++i) {
        score += double{q[i]} * stored_element(layer.k, layer.dtype, row_of(token) + i);
      }
      weights.push_back(score * double{scale});
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - largest);
    for (std::size_t t = 0; t < weights.size(); ++t) {
      const std::int64_t row = row_of(choice.positions[t]);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] += weights[t] / total *
                   stored_element(layer.v, layer.dtype, row + static_cast<std::int64_t>(i));
      }
    }
    return sums;
  }

  // Sparse rows of `out` are attention to `choices`.
  static void expect_attention_to(const CudaCase& c, const AttentionWorld& world,
                                  const std::vector<Choice>& choices,
                                  const std::vector<float>& out) {
    const AttentionShape& shape = c.world.shape;
    const std::int64_t group = shape.query_heads / shape.kv_heads;
    std::vector<float> queries = world.queries();
    for (float& value : queries) value = rounded(c.row_dtype, value);
    for (const Choice& choice : choices) {
      for (std::int64_t head = choice.kv_head * group; head < (choice.kv_head + 1) * group;
           ++head) {
        const auto at =
            static_cast<std::size_t>((choice.row * shape.query_heads + head) * shape.head_dim);
        const auto wanted =
            attend_in_double(world.layer(), world.batch(), choice, &queries[at], shape.scale);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_NEAR(out[at + i], wanted[i], tolerance(c))
              << "row " << choice.row << " head " << head << " column " << i;
        }
      }
    }
  }

  // Every choice has the largest guesses of the reference, in the order of positions.
  static void expect_best_choices(const CudaCase& c, const AttentionWorld& world,
                                  const std::vector<Choice>& choices) {
    const AttentionShape& shape = c.world.shape;
    ReferenceSparseAttention reference(shape, *c.world.dial, limits_of(c));
    const KvBatch batch = world.batch();
    reference.plan(batch);
    std::vector<float> queries = world.queries();
    for (float& value : queries) value = rounded(c.row_dtype, value);
    const std::int64_t group_floats = shape.query_heads / shape.kv_heads * shape.head_dim;
    for (const Choice& choice : choices) {
      SCOPED_TRACE(testing::Message() << "row " << choice.row << " head " << choice.kv_head);
      const std::int64_t tokens =
          batch.positions[static_cast<std::size_t>(choice.row)] + std::int64_t{1};
      EXPECT_EQ(std::ssize(choice.positions), c.world.dial->tokens_kept(tokens));
      const auto at =
          static_cast<std::size_t>((choice.row * shape.kv_heads + choice.kv_head) * group_floats);
      expect_best_choice(
          reference.guesses(world.layer(), choice.request, tokens, choice.kv_head, &queries[at]),
          choice.positions);
    }
  }

  // The last `rows` rows of each sequence are one batch, the others are stored.
  static void prepare_last(const CudaCase& c, AttentionWorld& world, std::int64_t rows) {
    Step stored, last;
    for (std::size_t s = 0; s < c.tokens.size(); ++s) {
      const std::int64_t here = std::min(rows, c.tokens[s]);
      if (c.tokens[s] > here) stored.push_back({s, c.tokens[s] - here});
      last.push_back({s, here});
    }
    world.prepare(stored);
    world.prepare(last);
  }

  static std::uint64_t seed() {
    return static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  }
};

class CudaSparseOfABatch : public CudaSparseFixture,
                           public testing::WithParamInterface<CudaCase> {};

TEST_P(CudaSparseOfABatch, ChoosesTheLargestGuessesAndAttendsToThem) {
  const CudaCase& c = GetParam();
  AttentionWorld world(c.world, c.tokens);
  prepare_last(c, world, 25);
  const std::vector<Choice> chosen = choices(c, world);
  EXPECT_FALSE(chosen.empty());
  expect_best_choices(c, world, chosen);
  expect_attention_to(c, world, chosen, attend(c, *make(c), world));
}

TEST_P(CudaSparseOfABatch, HasBitsThatDoNotDependOnHowItsRowsAreCut) {
  const CudaCase& c = GetParam();
  Prng prng(seed());
  expect_same_bits(attend_all_on_device(c, mixed(c.tokens, 2, prng)),
                   attend_all_on_device(c, sequences_one_by_one(c.tokens)));
}

std::vector<CudaCase> sparse_cases() {
  std::vector<CudaCase> cases;
  const auto add = [&](const std::string& name, std::int64_t query_heads, std::int64_t kv_heads,
                       DType dtype) -> CudaCase& {
    CudaCase c;
    c.name = name;
    c.world.shape = {
        .query_heads = query_heads, .kv_heads = kv_heads, .head_dim = 64, .scale = 0.125f};
    c.world.dtype = c.row_dtype = dtype;
    c.world.dial = kQuarter;
    c.tokens = {70, 5, 61};
    cases.push_back(c);
    return cases.back();
  };
  add("grouped_heads", 8, 2, DType::kBF16);
  add("as_many_kv_heads", 3, 3, DType::kF16).world.page_size = 1;
  add("two_query_heads_each", 4, 2, DType::kF32).world.page_size = 48;
  add("seven_query_heads_each", 14, 2, DType::kF32).world.layout = KvLayout::kPageFirst;
  add("more_query_heads_than_an_item_has", 20, 1, DType::kBF16).world.page_size = 3;
  add("many_kv_heads", 40, 40, DType::kBF16).tokens = {44};
  CudaCase& wide = add("head_dim_128", 4, 2, DType::kBF16);
  wide.world.shape.head_dim = 128;
  CudaCase& count = add("a_count_of_tokens", 2, 1, DType::kF16);
  count.world.dial = SparseDial{.dense_tokens = 8, .kept_tokens = 20, .kept_of = 0};
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Rows, CudaSparseOfABatch, testing::ValuesIn(sparse_cases()),
                         [](const auto& instance) { return instance.param.name; });

class CudaSparseTest : public CudaSparseFixture {
 protected:
  // Contexts of several spans of labels and several partitions of chosen tokens.
  static CudaCase long_case(DType dtype = DType::kBF16) {
    CudaCase c = sparse(4, dtype);
    c.world.dial = SparseDial{.dense_tokens = 1000, .kept_tokens = 1, .kept_of = 2};
    c.tokens = {2100, 40, 1300};
    c.rows_max = 3;
    return c;
  }
  Outputs decoded(const CudaCase& c) {
    AttentionWorld world(c.world, c.tokens);
    prepare_last(c, world, 1);
    return {attend(c, *make(c), world)};
  }
};

// Scores are whole and few octaves apart: weights, their sums and guesses are the same numbers in
// any order of addition, many of them equal.
TEST_F(CudaSparseTest, ChoosesWhatTheCpuChoosesTiesIncluded) {
  for (const std::int64_t group : {1, 4}) {
    CudaCase c = sparse(group, DType::kF32);
    c.world.whole = true;
    c.world.shape.scale = 0.693147182f;  // 1 in base 2
    c.tokens = {150, 41, 97};
    AttentionWorld world(c.world, c.tokens);
    prepare_last(c, world, 4);
    const std::vector<Choice> chosen = choices(c, world);
    const KvBatch batch = world.batch();
    const KvLayerView layer = world.layer();
    ChoiceMemory memory(150);
    ASSERT_FALSE(chosen.empty());
    for (const Choice& choice : chosen) {
      SCOPED_TRACE(testing::Message() << "row " << choice.row << " head " << choice.kv_head);
      SelectTask task = {
          &layer, &c.world.shape, raw(batch.page_table.pages_of(choice.request)).data(),
          world.queries().data() + (choice.row * 2 + choice.kv_head) * group * 64, choice.kv_head};
      task.tokens = batch.positions[static_cast<std::size_t>(choice.row)] + 1;
      task.kept_tokens = std::ssize(choice.positions);
      select_kernel()(task, memory.scratch());
      ASSERT_TRUE(
          std::equal(choice.positions.begin(), choice.positions.end(), memory.chosen.begin()));
    }
  }
}

// From flat to sharp scores, whose guesses lie octaves apart.
TEST_F(CudaSparseTest, ChoosesTheLargestGuessesOfLongContexts) {
  for (const float scale : {0.001f, 0.125f, 2.0f, 30.0f}) {
    SCOPED_TRACE(scale);
    CudaCase c = long_case(DType::kF32);
    c.world.shape.scale = scale;
    AttentionWorld world(c.world, c.tokens);
    prepare_last(c, world, 1);
    expect_best_choices(c, world, choices(c, world));
  }
}

TEST_F(CudaSparseTest, AttendsToWhatLongContextsChoose) {
  const CudaCase c = long_case();
  AttentionWorld world(c.world, c.tokens);
  prepare_last(c, world, 1);
  expect_attention_to(c, world, choices(c, world), attend(c, *make(c), world));
}

TEST_F(CudaSparseTest, HasTheSameBitsInAnyWavesAndWithLittleRoomForSums) {
  CudaCase c = long_case();
  const Outputs expected = decoded(c);
  c.choice_bytes_max = 0;  // a row each
  expect_same_bits(decoded(c), expected);
  c.sums_bytes_max = 0;
  expect_same_bits(decoded(c), expected);
}

TEST_F(CudaSparseTest, HasTheSameBitsOnAnyPages) {
  CudaCase c = sparse(4);
  const Outputs expected = attend_all_on_device(c, sequences_one_by_one(c.tokens));
  for (const std::int64_t page_size : {1, 3, 64}) {
    SCOPED_TRACE(page_size);
    c.world.page_size = page_size;
    c.world.placement_seed = seed() + static_cast<std::uint64_t>(page_size);
    c.world.layout = page_size == 3 ? KvLayout::kPageFirst : KvLayout::kLayerFirst;
    expect_same_bits(attend_all_on_device(c, sequences_one_by_one(c.tokens)), expected);
  }
}

// Dense rows that share a begin are computed together, sparse ones are not.
TEST_F(CudaSparseTest, SharesBeginsOfDenseRowsAlone) {
  CudaCase c = sparse(4);
  c.world.dial = SparseDial{.dense_tokens = 1060, .kept_tokens = 1, .kept_of = 8};
  c.tokens = {1100, 1030, 1060, 530};
  c.world.shared = {{1, 0, 1024}, {2, 0, 1024}, {3, 0, 512}};
  const Outputs together = decoded(c);
  c.share_prefixes = false;
  expect_same_bits(together, decoded(c));
}

TEST_F(CudaSparseTest, TheDenseEndAndAChoiceOfEverythingAreDenseAttention) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    CudaCase c = sparse(4, dtype);
    c.tokens = {90, 30};
    c.world.dial = std::nullopt;
    const Outputs dense = attend_all_on_device(c, sequences_one_by_one(c.tokens));
    for (const SparseDial dial :
         {SparseDial{0, 1, 1}, SparseDial{90, 1, 8}, SparseDial{0, 95, 96}}) {
      c.world.dial = dial;
      expect_same_bits(attend_all_on_device(c, sequences_one_by_one(c.tokens)), dense);
    }
  }
}

// Batches of a bucket have more or fewer sparse rows, in more or fewer waves.
TEST_F(CudaSparseTest, ComputesLaterBatchesOfABucketFromOneRecording) {
  CudaCase c = sparse(4);
  c.tokens = {60, 45, 700};
  c.choice_bytes_max = 2 * 2 * 4 * 1200;  // two rows of 700 tokens
  ASSERT_EQ(CudaTokenChoice::wave_rows(c.world.shape, choice_limits(c)), 2);
  AttentionWorld world(c.world, c.tokens);
  world.prepare({{0, 30}, {1, 40}, {2, 660}});
  const auto attention = make(c);
  const std::size_t row = 8 * 64;
  const DeviceLayer layer = upload_layer(world.layer());
  const CudaMemory q = allocate<std::uint16_t>(3 * row);
  const CudaMemory out = allocate<std::uint16_t>(3 * row);
  CudaGraph graph;
  for (const Step& step :
       std::vector<Step>{{{0, 1}}, {{0, 1}, {1, 1}, {2, 1}}, {{2, 1}, {1, 1}}, {{1, 1}}}) {
    world.prepare(step);
    const std::vector<float> wanted = attend(c, *attention, world);
    const DeviceLayer now = upload_layer(world.layer());
    const CudaMemory queries = upload(as_rows(c.row_dtype, world.queries()));
    for (const auto& [to, from] :
         {std::pair(&layer.k, &now.k), std::pair(&layer.v, &now.v),
          std::pair(&layer.labels, &now.labels), std::pair(&q, &queries)}) {
      ASSERT_TRUE(stream().copy(to->bytes(), from->bytes(), from->size_bytes()).ok());
    }
    ASSERT_TRUE(stream().fill(out.bytes(), 0xFF, out.size_bytes()).ok());
    ASSERT_TRUE(attention->plan_decode(stream(), world.batch(), 3).ok());
    if (graph.empty()) {
      ASSERT_TRUE(stream().begin_recording().ok());
      ASSERT_TRUE(attention->run(stream(), layer.view, q.bytes(), out.bytes()).ok());
      auto recorded = stream().end_recording();
      ASSERT_TRUE(recorded.ok());
      graph = std::move(recorded).value();
    }
    ASSERT_TRUE(stream().replay(graph).ok());
    const auto actual = download<std::byte>(out.bytes(), 3 * row * 2);
    const auto all = from_rows(c.row_dtype, actual);
    expect_same_bits({{all.begin(), all.begin() + std::ssize(wanted)}}, {wanted});
    for (std::size_t i = 2 * wanted.size(); i < actual.size(); ++i) {
      ASSERT_EQ(actual[i], std::byte{0xFF}) << "a row beyond the batch was written";
    }
  }
}

TEST_F(CudaSparseTest, RefusesWhatIsNotSparseOnACpuEither) {
  const auto code = [&](const CudaCase& c) {
    auto made = CudaAttention::create(device(), stream(), c.world.shape, limits_of(c),
                                      {.row_dtype = DType::kBF16,
                                       .kv_dtype = c.world.dtype,
                                       .page_size = 16,
                                       .dial = c.world.dial});
    EXPECT_FALSE(made.ok());
    return made.ok() ? ErrorCode::kInternal : made.error().code;
  };
  CudaCase c = sparse(4);
  c.world.dtype = DType::kInt8;
  EXPECT_EQ(code(c), ErrorCode::kUnsupported);
  c = sparse(4);
  c.world.shape.window_tokens = 8;
  EXPECT_EQ(code(c), ErrorCode::kUnsupported);
  c = sparse(4);
  c.world.shape.score_cap = 5;
  EXPECT_EQ(code(c), ErrorCode::kUnsupported);
  c = sparse(4);
  c.world.dial = SparseDial{-1, 1, 8};
  EXPECT_EQ(code(c), ErrorCode::kInvalidArgument);
}

TEST_F(CudaSparseTest, RefusesLayersWithoutLabels) {
  const CudaCase c = sparse(4);
  AttentionWorld world(c.world, c.tokens);
  prepare_last(c, world, 1);
  const auto attention = make(c);
  ASSERT_TRUE(attention->plan(stream(), world.batch()).ok());
  KvLayerView layer = world.layer();
  layer.labels = nullptr;
  EXPECT_EQ(attention->run(stream(), layer, nullptr, nullptr).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace stemma
