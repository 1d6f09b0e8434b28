#include "replay/trace_merge.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "replay/trace_fields.h"

namespace stemma {

namespace {

// std heaps have their largest on top: what comes later is smaller.
constexpr auto kComesLater = [](const auto& left, const auto& right) {
  return std::tie(left.request.timestamp_ms, left.source, left.number) >
         std::tie(right.request.timestamp_ms, right.source, right.number);
};

}  // namespace

Result<TraceMerge> TraceMerge::open(const std::vector<std::string>& paths,
                                    const TraceOptions& options) {
  if (paths.empty()) return Error{ErrorCode::kInvalidArgument, "--trace: a file is wanted"};
  TraceMerge merge(options);
  const std::size_t places = TraceConsistency::kPlaces / paths.size() + 1;
  for (const std::string& path : paths) {
    STEMMA_ASSIGN_OR_RETURN(TraceReader reader, TraceReader::open(path, options, places));
    merge.readers_.push_back(std::move(reader));
  }
  for (std::size_t source = 0; source < paths.size(); ++source) {
    std::int64_t before = -1;  // until nothing comes any more
    for (std::int64_t i = 0; i < options.reorder_requests && before != merge.fetched_; ++i) {
      before = merge.fetched_;
      STEMMA_RETURN_IF_ERROR(merge.fetch(source));
    }
  }
  return merge;
}

Result<bool> TraceMerge::next(TraceRequest& request) {
  while (!heap_.empty()) {
    Waiting earliest = take_earliest();
    STEMMA_RETURN_IF_ERROR(fetch(earliest.source));
    if (earliest.request.timestamp_ms >= latest_ms_) {
      latest_ms_ = earliest.request.timestamp_ms;
      request = std::move(earliest.request);
      return true;
    }
    if (!skip_bad_) {
      return wrong_trace_field(earliest.where, "timestamp",
                               "earlier than requests that are too far before it");
    }
    ++late_requests_;
  }
  return false;
}

std::int64_t TraceMerge::read_bytes() const noexcept {
  std::int64_t bytes = 0;
  for (const TraceReader& reader : readers_) bytes += reader.read_bytes();
  return bytes;
}

std::int64_t TraceMerge::skipped_lines() const noexcept {
  std::int64_t lines = late_requests_;
  for (const TraceReader& reader : readers_) lines += reader.skipped_lines();
  return lines;
}

Status TraceMerge::fetch(std::size_t source) {
  TraceReader& reader = readers_[source];
  Waiting waiting;
  STEMMA_ASSIGN_OR_RETURN(const bool more, reader.next(waiting.request));
  if (!more) return {};
  if (page_tokens_ == 0) page_tokens_ = reader.page_tokens();
  if (reader.page_tokens() != page_tokens_) {
    return wrong_trace_field(reader.where(), "page_size",
                             std::to_string(reader.page_tokens()) + ", and in another file " +
                                 std::to_string(page_tokens_));
  }
  waiting.source = source;
  waiting.number = fetched_++;
  waiting.where = reader.where();
  heap_.push_back(std::move(waiting));
  std::push_heap(heap_.begin(), heap_.end(), kComesLater);
  return {};
}

TraceMerge::Waiting TraceMerge::take_earliest() {
  std::pop_heap(heap_.begin(), heap_.end(), kComesLater);
  Waiting earliest = std::move(heap_.back());
  heap_.pop_back();
  return earliest;
}

}  // namespace stemma
