// What the stamp model sees: a flip of any bit, of any page that it reads, in pools of every kind;
// and of windowed layers in the window alone.
#include "sim/stamp_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace stemma {
namespace {

constexpr std::int32_t kPageSize = 2;

// One text in pages 0, 1, … of its pools, computed token by token.
class OneText {
 public:
  explicit OneText(KvKind kind, std::int64_t window_tokens = 0)
      : pool_(make_stamp_pool(stamp_shape(4, kPageSize, kind), KvLayout::kPageFirst)),
        windowed_(make_stamp_pool(stamp_shape(4, kPageSize), KvLayout::kLayerFirst)) {
    look_back(window_tokens);
  }

  // As of a model that has seen nothing.
  void look_back(std::int64_t window_tokens) {
    window_tokens_ = window_tokens;
    model_ = StampModel();
    model_.look_back(window_tokens);
  }

  // Computes the next token; what was wrong.
  std::string step(std::int32_t position) {
    const TokenId token = 7 + position;
    const SlotId slot(position);
    std::vector<PageId> pages(static_cast<std::size_t>(position / kPageSize + 1));
    for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = PageId(static_cast<std::int32_t>(i));
    std::vector<PageId> in_window = pages;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const auto end = static_cast<std::int64_t>(i + 1) * kPageSize;
      if (end <= position - window_tokens_ + 1) in_window[i] = PageId();
    }
    const std::int32_t indptr[] = {0, static_cast<std::int32_t>(pages.size())};
    const std::int32_t last_page_tokens = position % kPageSize + 1;
    const std::int32_t row_indptr[] = {0, 1};
    const RequestId request(0);
    KvBatch batch = {.tokens = {&token, 1},
                     .positions = {&position, 1},
                     .write_slots = {&slot, 1},
                     .row_indptr = row_indptr,
                     .requests = {&request, 1},
                     .page_table = {indptr, pages, {&last_page_tokens, 1}, kPageSize},
                     .logit_rows = {}};
    if (window_tokens_ > 0) {
      batch.windowed_slots = {&slot, 1};
      batch.windowed_table = {indptr, in_window, {&last_page_tokens, 1}, kPageSize};
    }
    static_cast<void>(model_.forward(batch, {*pool_, windowed_.get()}).ok());
    return model_.fault();
  }

  KvPool& pool() { return *pool_; }
  KvPool& windowed() { return *windowed_; }

 private:
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<KvPool> windowed_;
  StampModel model_;
  std::int64_t window_tokens_ = 0;
};

class EveryKind : public ::testing::TestWithParam<KvKind> {};

TEST_P(EveryKind, AFlipOfAnyByteShows) {
  OneText text(GetParam());
  for (std::int32_t position = 0; position < 4; ++position) ASSERT_EQ(text.step(position), "");
  for (std::int64_t layer = 0; layer < text.pool().shape().layers; ++layer) {
    for (const PagePiece<std::byte>& piece : text.pool().layer_pieces(layer)) {
      for (std::int64_t i = 0; i < 2 * piece.bytes; ++i) {
        std::byte& byte =
            piece.of(PageId(static_cast<std::int32_t>(i / piece.bytes)))[i % piece.bytes];
        byte ^= std::byte{1};
        text.look_back(0);
        EXPECT_NE(text.step(4), "") << "layer " << layer << " byte " << i;
        byte ^= std::byte{1};
      }
    }
  }
  text.look_back(0);
  EXPECT_EQ(text.step(4), "");
}

INSTANTIATE_TEST_SUITE_P(StampModel, EveryKind,
                         ::testing::Values(KvKind::kMha, KvKind::kMla, KvKind::kDoubleSparse),
                         [](const auto& kind) { return std::string(kv_kind_name(kind.param)); });

// The next token, the seventh, sees three before itself.
TEST(StampModel, AWindowIsReadAndNothingBeforeIt) {
  constexpr std::int64_t kWindow = 4;
  OneText text(KvKind::kMha, kWindow);
  for (std::int32_t position = 0; position < 6; ++position) ASSERT_EQ(text.step(position), "");
  for (std::int32_t page = 0; page < 3; ++page) {
    for (std::int64_t token = 0; token < kPageSize; ++token) {
      const PagePiece<std::byte> piece = *text.windowed().layer_pieces(1).begin();
      std::byte& byte = piece.of(PageId(page))[token * piece.bytes / kPageSize];
      byte ^= std::byte{1};
      text.look_back(kWindow);
      const bool seen = page * kPageSize + token > 6 - kWindow;
      EXPECT_EQ(text.step(6) != "", seen) << "page " << page << " token " << token;
      byte ^= std::byte{1};
    }
  }
}

// The bytes of one pool are wrong in the other.
TEST(StampModel, WindowedLayersHaveStampsOfTheirOwn) {
  OneText text(KvKind::kMha, 4);
  for (std::int32_t position = 0; position < 2; ++position) ASSERT_EQ(text.step(position), "");
  for (std::int64_t layer = 0; layer < text.pool().shape().layers; ++layer) {
    const auto to = text.windowed().layer_pieces(layer);
    const PagePiece<std::byte>* target = to.begin();
    for (const PagePiece<std::byte>& piece : text.pool().layer_pieces(layer)) {
      std::copy_n(piece.of(PageId(0)), piece.bytes, (target++)->of(PageId(0)));
    }
  }
  EXPECT_NE(text.step(2), "");
}

}  // namespace
}  // namespace stemma
