#include "replay/trace_future.h"

#include "base/check.h"

namespace stemma {

void TraceFuture::add(const TraceRequest& request) {
  STEMMA_CHECK(requests() < kNever - 1 && nodes() < kNever - 1, "a trace fits into 31-bit numbers");
  Node node = kRoot;
  for (const std::int64_t page_hash : request.page_hashes) node = add_page(node, page_hash, true);
  for (const std::int64_t page_hash : request.output_page_hashes) {
    node = add_page(node, page_hash, false);
  }
  lookups_.push_back(std::ssize(request.page_hashes));
  ends_.push_back(pages_.size());
}

// The present request's next page.
TraceFuture::Node TraceFuture::add_page(Node parent, std::int64_t page_hash, bool is_lookup) {
  const auto [found, is_new] = nodes_by_step_.try_emplace({parent, page_hash}, nodes());
  if (is_new) {
    parents_.push_back(parent);
    latest_places_.push_back(pages_.size());
  } else {
    std::size_t& latest = latest_places_[static_cast<std::size_t>(found->second)];
    if (is_lookup) next_uses_[latest] = requests();
    latest = pages_.size();
  }
  pages_.push_back(found->second);
  next_uses_.push_back(kNever);
  return found->second;
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
