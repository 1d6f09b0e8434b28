// Steady state: once it has run, forward takes nothing from the heap. Every operator new of this
// program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/heap_counter.h"
#include "base/temp_directory.h"
#include "model/model_runner.h"
#include "model/random_adapter.h"
#include "model/random_model.h"
#include "pool/kv_pool_factory.h"

namespace stemma {
namespace {

// One request of `rows` tokens in `pages`, all of them new.
struct OneRequest {
  OneRequest(std::int64_t rows, std::int64_t page_size, AdapterId adapter = {})
      : adapters({adapter}) {
    for (std::int64_t i = 0; i < rows; ++i) {
      tokens.push_back(static_cast<TokenId>(i % 200));
      positions.push_back(static_cast<std::int32_t>(i));
      slots.push_back(SlotId(i));
    }
    for (std::int64_t page = 0; page * page_size < rows; ++page) {
      pages.push_back(PageId(static_cast<std::int32_t>(page)));
    }
    row_indptr = {0, static_cast<std::int32_t>(rows)};
    indptr = {0, static_cast<std::int32_t>(pages.size())};
    last_page_tokens = {static_cast<std::int32_t>((rows - 1) % page_size + 1)};
    logit_rows = {static_cast<std::int32_t>(rows - 1)};
    const PageTableView table = {indptr, pages, last_page_tokens, page_size};
    batch = {.tokens = tokens,
             .positions = positions,
             .write_slots = slots,
             .row_indptr = row_indptr,
             .requests = ids,
             .adapters = adapters,
             .page_table = table,
             .windowed_slots = slots,
             .windowed_table = table,
             .logit_rows = logit_rows};
  }

  std::vector<TokenId> tokens;
  std::vector<std::int32_t> positions;
  std::vector<SlotId> slots;
  std::vector<PageId> pages;
  std::vector<std::int32_t> row_indptr;
  std::vector<std::int32_t> indptr;
  std::vector<std::int32_t> last_page_tokens;
  std::vector<std::int32_t> logit_rows;
  std::vector<RequestId> ids = {RequestId(0)};
  std::vector<AdapterId> adapters;
  KvBatch batch;
};

class Allocation : public ::testing::TestWithParam<std::string_view> {};

TEST_P(Allocation, ForwardTakesNothingFromTheHeap) {
  TempDirectory directory;
  ASSERT_TRUE(write_random_model(directory.path(), {.config = tiny_model_config(GetParam())}).ok());
  ThreadPool threads(2);
  TempDirectory adapter;
  ASSERT_TRUE(write_random_adapter(adapter.path(), {.config = tiny_model_config(GetParam())}).ok());
  const ModelRunnerOptions options = {.adapters = {{"adapter", adapter.path()}}};
  const auto runner = ModelRunner::load(directory.path(), options, threads);
  ASSERT_TRUE(runner.ok());
  KvShape shape = (*runner)->pool_shape();
  shape.page_size = 16;
  shape.pages = 32;
  shape.dtype = DType::kBF16;
  const auto pool = make_kv_pool(shape, KvLayout::kLayerFirst, threads);
  ASSERT_TRUE(pool.ok());
  shape.layers = (*runner)->windowed_pool_shape().layers;
  const auto windowed = make_kv_pool(shape, KvLayout::kLayerFirst, threads);
  ASSERT_TRUE(windowed.ok());
  const KvPools pools = {**pool, windowed->get()};
  const OneRequest decode(1, 16);
  const OneRequest prefill(300, 16);
  const OneRequest adapted(300, 16, AdapterId(0));
  for (const OneRequest* request : {&decode, &prefill, &adapted}) {
    ASSERT_TRUE((*runner)->forward(request->batch, pools).ok());
    const std::int64_t before = heap_allocations.load();
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE((*runner)->forward(request->batch, pools).ok());
    }
    EXPECT_EQ(heap_allocations.load(), before);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Allocation, ::testing::ValuesIn(tiny_model_names()),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace stemma
