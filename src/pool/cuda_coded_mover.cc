#include "pool/cuda_coded_mover.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/thread_pool.h"

namespace stemma {

namespace {

// A layer of an image as what coders take: a page of one piece.
template <typename Byte>
PageLayer<Byte> one_piece(std::span<Byte> layer) {
  PageLayer<Byte> page = {{}, PageId(0)};
  page.pieces.push_back({.page0 = layer.data(), .bytes = std::ssize(layer)});
  return page;
}

// Passes on what the copies of a group say: of one that others come behind nothing (null), and
// never that a layer is right where something else is not.
class GroupArrivals final : public LayerArrivals {
 public:
  GroupArrivals(LayerArrivals* last_or_null, bool rest_is_right)
      : last_(last_or_null), rest_is_right_(rest_is_right) {}
  void queued(std::int64_t layer) override {
    if (last_ != nullptr) last_->queued(layer);
  }
  void arrived(std::int64_t layer, bool right) override {
    if (last_ != nullptr) last_->arrived(layer, right && rest_is_right_);
  }

 private:
  LayerArrivals* last_;
  bool rest_is_right_;
};

}  // namespace

Result<std::unique_ptr<CudaCodedMover>> CudaCodedMover::open(CudaPool& pool, HostPool& host,
                                                             std::int64_t staged_bytes) {
  STEMMA_CHECK(host.codec() != PageCodec::kPlain, "a host pool with a codec");
  auto mover = std::make_unique<CudaCodedMover>(Key(), pool, host);
  HostPoolOptions options;
  options.layers = pool.shape().layers;
  options.layer_bytes = pool.layer_bytes();
  const std::int64_t page_bytes = std::max<std::int64_t>(options.layers * options.layer_bytes, 1);
  const std::int64_t pages =
      std::clamp<std::int64_t>(staged_bytes / page_bytes, 1, pool.shape().pages);
  options.pages = options.pages_min = 2 * pages;
  mover->staged_pages_ = static_cast<std::size_t>(pages);
  ThreadPool threads(1);
  STEMMA_ASSIGN_OR_RETURN(mover->staging_, HostPool::create(options, threads));
  STEMMA_ASSIGN_OR_RETURN(mover->plain_, CudaPageMover::open(pool, *mover->staging_));
  mover->in_image_.resize(static_cast<std::size_t>(mover->staging_->page_bytes()));
  return mover;
}

CudaCodedMover::CudaCodedMover(Key, CudaPool& pool, HostPool& host)
    : host_(host),
      layers_(static_cast<std::size_t>(pool.shape().layers)),
      down_{LayerCoder(host.codec(), pool.shape()), {}, {}, {}},
      up_{LayerCoder(host.codec(), pool.shape()), {}, {}, {}},
      in_coder_(host.codec(), pool.shape()) {
  down_.sums.resize(layers_);
  up_.sums.resize(layers_);
  in_sums_.resize(layers_);
}

void CudaCodedMover::back_up(std::span<PageMove> moves, GoOn go_on) {
  for (PageMove& move : moves) host_.forget(move.to);
  for (std::size_t first = 0; first < moves.size(); first += staged_pages_) {
    const auto group = moves.subspan(first, std::min(staged_pages_, moves.size() - first));
    down_.staged.clear();
    for (const PageMove& move : group) {
      const PageId page(static_cast<std::int32_t>(down_.staged.size()));
      down_.staged.push_back({.from = move.from, .to = page, .key = move.key});
    }
    plain_->back_up(down_.staged, go_on);
    for (std::size_t i = 0; i < group.size(); ++i) {
      const PageMove& staged = down_.staged[i];
      const bool done = staged.verdict == MoveVerdict::kDone && try_encode(staged.to, group[i]);
      group[i].verdict = done ? MoveVerdict::kDone : MoveVerdict::kCancelled;
    }
  }
}

// What came down wrong is not encoded.
bool CudaCodedMover::try_encode(PageId staged, const PageMove& move) {
  const std::span<const std::uint32_t> came = staging_->layer_sums(staged);
  for (std::size_t layer = 0; layer < layers_; ++layer) {
    const auto number = static_cast<std::int64_t>(layer);
    const std::span<const std::byte> image = staging_->layer_image(staged, number);
    if (crc32c(image) != came[layer]) return false;
    const auto sum =
        down_.coder.try_copy_out(one_piece(image), host_.layer_image(move.to, number), {});
    if (!sum.has_value()) return false;
    down_.sums[layer] = *sum;
  }
  host_.seal(move.to, move.key, down_.sums);
  return true;
}

void CudaCodedMover::promote(std::span<PageMove> moves, GoOn go_on, LayerArrivals& arrivals) {
  std::size_t first = 0;
  bool right = true;
  do {
    const auto group = moves.subspan(first, std::min(staged_pages_, moves.size() - first));
    first += group.size();
    GroupArrivals group_arrivals(first == moves.size() ? &arrivals : nullptr, right);
    promote_group(group, go_on, group_arrivals);
    right = right && std::all_of(group.begin(), group.end(), [](const PageMove& move) {
              return move.verdict == MoveVerdict::kDone;
            });
  } while (first < moves.size());
}

void CudaCodedMover::promote_group(std::span<PageMove> moves, GoOn go_on, LayerArrivals& arrivals) {
  up_.staged.clear();
  up_.moves.clear();
  for (PageMove& move : moves) {
    const PageId page(static_cast<std::int32_t>(staged_pages_ + up_.staged.size()));
    if (!host_.holds(move.from, move.key)) {
      move.verdict = MoveVerdict::kStale;
    } else if (!go_on()) {
      move.verdict = MoveVerdict::kCancelled;
    } else if (!try_decode(move, page)) {
      move.verdict = MoveVerdict::kCorrupt;
    } else {
      up_.staged.push_back({.from = page, .to = move.to, .key = move.key});
      up_.moves.push_back(&move);
    }
  }
  GroupArrivals all(&arrivals, up_.moves.size() == moves.size());
  plain_->promote(up_.staged, go_on, all);
  for (std::size_t i = 0; i < up_.staged.size(); ++i) {
    up_.moves[i]->verdict = up_.staged[i].verdict;
  }
}

bool CudaCodedMover::try_decode(const PageMove& move, PageId staged) {
  staging_->forget(staged);
  const std::span<const std::uint32_t> sums = host_.layer_sums(move.from);
  for (std::size_t layer = 0; layer < layers_; ++layer) {
    const auto number = static_cast<std::int64_t>(layer);
    const std::span<std::byte> image = staging_->layer_image(staged, number);
    if (!up_.coder.try_copy_in(host_.layer_image(move.from, number), sums[layer], one_piece(image),
                               {})) {
      return false;
    }
    up_.sums[layer] = crc32c(image);
  }
  staging_->seal(staged, move.key, up_.sums);
  return true;
}

bool CudaCodedMover::try_wait_on(CudaStream& stream, std::int64_t layer) {
  return plain_->try_wait_on(stream, layer);
}

MoveVerdict CudaCodedMover::copy_page_in(std::span<const std::byte> image,
                                         std::span<const std::uint32_t> sums, PageId page) {
  STEMMA_CHECK_EQ(image.size(), static_cast<std::size_t>(host_.page_bytes()));
  STEMMA_CHECK_EQ(sums.size(), layers_);
  const std::lock_guard lock(in_mutex_);
  const auto coded_bytes = static_cast<std::size_t>(host_.layer_bytes());
  const auto plain_bytes = static_cast<std::size_t>(staging_->layer_bytes());
  for (std::size_t layer = 0; layer < layers_; ++layer) {
    const auto plain = std::span(in_image_).subspan(layer * plain_bytes, plain_bytes);
    const auto coded = image.subspan(layer * coded_bytes, coded_bytes);
    if (!in_coder_.try_copy_in(coded, sums[layer], one_piece(plain), {})) {
      return MoveVerdict::kCorrupt;
    }
    in_sums_[layer] = crc32c(plain);
  }
  return plain_->copy_page_in(in_image_, in_sums_, page);
}

}  // namespace stemma
