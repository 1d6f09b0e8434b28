#include "replay/trace_future.h"

#include "base/check.h"
#include "base/prng.h"

namespace stemma {

std::size_t TraceFuture::StepHash::operator()(const Step& step) const noexcept {
  const std::uint64_t above = mix64(static_cast<std::uint64_t>(step.parent));
  return static_cast<std::size_t>(mix64(above ^ static_cast<std::uint64_t>(step.page_hash)));
}

void TraceFuture::add(const TraceRequest& request) {
  STEMMA_CHECK(requests() < kNever - 1 && nodes() < kNever - 1, "a trace fits into 31-bit numbers");
  const std::int32_t now = requests();
  Node node = kRoot;
  for (const std::int64_t page_hash : request.page_hashes) {
    const auto [found, is_new] = nodes_by_step_.try_emplace({node, page_hash}, nodes());
    if (is_new) {
      parents_.push_back(node);
      latest_uses_.push_back(pages_.size());
    } else {
      std::size_t& latest = latest_uses_[static_cast<std::size_t>(found->second)];
      next_uses_[latest] = now;
      latest = pages_.size();
    }
    node = found->second;
    pages_.push_back(node);
    next_uses_.push_back(kNever);
  }
  ends_.push_back(pages_.size());
}

std::size_t TraceFuture::begin_of(std::int32_t request) const {
  return request == 0 ? 0 : ends_[static_cast<std::size_t>(request) - 1];
}

std::span<const TraceFuture::Node> TraceFuture::pages_of(std::int32_t request) const {
  const std::size_t begin = begin_of(request);
  return std::span(pages_).subspan(begin, ends_[static_cast<std::size_t>(request)] - begin);
}

std::span<const std::int32_t> TraceFuture::next_uses_of(std::int32_t request) const {
  const std::size_t begin = begin_of(request);
  return std::span(next_uses_).subspan(begin, ends_[static_cast<std::size_t>(request)] - begin);
}

}  // namespace stemma
