#include "alloc/request_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"

namespace stemma {

RequestRow::RequestRow(RequestRow&& other) noexcept
    : table_(std::exchange(other.table_, nullptr)), id_(std::exchange(other.id_, RowId())) {}

RequestRow& RequestRow::operator=(RequestRow&& other) noexcept {
  if (this != &other) {
    reset();
    table_ = std::exchange(other.table_, nullptr);
    id_ = std::exchange(other.id_, RowId());
  }
  return *this;
}

RequestRow::~RequestRow() {
  reset();
}

RowId RequestRow::release() noexcept {
  STEMMA_CHECK(valid(), "only a held row can be released");
  table_ = nullptr;
  return std::exchange(id_, RowId());
}

void RequestRow::reset() noexcept {
  if (table_ != nullptr) {
    std::exchange(table_, nullptr)->give_back(std::exchange(id_, RowId()));
  }
}

RequestTable::RequestTable(const Extent& extent)
    : pages_max_(extent.pages_max),
      pages_(static_cast<std::size_t>(extent.rows * extent.pages_max)),
      length_(static_cast<std::size_t>(extent.rows), kNotHeld) {
  STEMMA_CHECK_GE(extent.rows, 1);
  STEMMA_CHECK_GE(extent.pages_max, 1);
  free_.reserve(length_.size());
  for (std::int64_t row = extent.rows - 1; row >= 0; --row) {
    free_.push_back(RowId(static_cast<std::int32_t>(row)));
  }
}

RequestTable::~RequestTable() {
  STEMMA_CHECK_EQ(free_rows(), rows());
}

std::optional<RequestRow> RequestTable::try_take() {
  if (free_.empty()) {
    return std::nullopt;
  }
  const RowId row = free_.back();
  free_.pop_back();
  length_[row.index()] = 0;
  return RequestRow(this, row);
}

bool RequestTable::try_take(std::span<RequestRow> rows) {
  const auto wanted =
      std::count_if(rows.begin(), rows.end(), [](const RequestRow& row) { return !row.valid(); });
  if (wanted > free_rows()) {
    return false;
  }
  for (RequestRow& row : rows) {
    if (!row.valid()) {
      row = *try_take();
    }
  }
  return true;
}

RequestRow RequestTable::adopt(RowId row) {
  STEMMA_CHECK_NE(length_[row.index()], kNotHeld);
  return {this, row};
}

std::span<const PageId> RequestTable::pages(RowId row) const {
  const std::int64_t length = length_[row.index()];
  STEMMA_CHECK_GE(length, 0);
  return std::span<const PageId>(pages_).subspan(row.index() * static_cast<std::size_t>(pages_max_),
                                                 static_cast<std::size_t>(length));
}

std::span<PageId> RequestTable::pages(RowId row) {
  const std::int64_t length = length_[row.index()];
  STEMMA_CHECK_GE(length, 0);
  return {row_begin(row), static_cast<std::size_t>(length)};
}

std::span<PageId> RequestTable::grow(RowId row, std::int64_t pages) {
  std::int64_t& length = length_[row.index()];
  STEMMA_CHECK_GE(length, 0);
  STEMMA_CHECK_GE(pages, 0);
  STEMMA_CHECK_LE(length + pages, pages_max_);
  PageId* added = row_begin(row) + length;
  length += pages;
  return {added, static_cast<std::size_t>(pages)};
}

void RequestTable::shrink(RowId row, std::int64_t pages) {
  STEMMA_CHECK_GE(pages, 0);
  STEMMA_CHECK_LE(pages, length_[row.index()]);
  length_[row.index()] = pages;
}

void RequestTable::give_back(RowId row) noexcept {
  STEMMA_CHECK_NE(length_[row.index()], kNotHeld);
  length_[row.index()] = kNotHeld;
  free_.push_back(row);
}

PageId* RequestTable::row_begin(RowId row) {
  return pages_.data() + row.index() * static_cast<std::size_t>(pages_max_);
}

void write_slots(std::span<const PageId> pages, std::int64_t page_size, std::int64_t first_position,
                 std::span<SlotId> out) {
  std::int64_t page = first_position / page_size;
  std::int64_t offset = first_position % page_size;
  for (SlotId& slot : out) {
    const PageId holder = pages[static_cast<std::size_t>(page)];
    slot = SlotId(holder.value() * page_size + offset);
    if (++offset == page_size) {
      offset = 0;
      ++page;
    }
  }
}

PageTableAssembly::PageTableAssembly(const Extent& extent) : page_size_(extent.page_size) {
  STEMMA_CHECK_GE(extent.page_size, 1);
  indptr_.reserve(static_cast<std::size_t>(extent.requests_max) + 1);
  pages_.reserve(static_cast<std::size_t>(extent.pages_max));
  last_page_tokens_.reserve(static_cast<std::size_t>(extent.requests_max));
  clear();
}

void PageTableAssembly::clear() {
  indptr_.assign(1, 0);
  pages_used_ = 0;
  last_page_tokens_.clear();
}

void PageTableAssembly::add(std::span<const PageId> pages, std::int64_t tokens) {
  const std::int64_t used = ceil_div(tokens, page_size_);
  STEMMA_CHECK_LE(used, static_cast<std::int64_t>(pages.size()));
  STEMMA_CHECK(last_page_tokens_.size() < last_page_tokens_.capacity(), "requests_max requests");
  const std::size_t end = pages_used_ + static_cast<std::size_t>(used);
  STEMMA_CHECK(end <= pages_.capacity(), "pages_max pages");
  if (end > pages_.size()) pages_.resize(end);
  std::copy_n(pages.begin(), used, pages_.begin() + static_cast<std::ptrdiff_t>(pages_used_));
  pages_used_ = end;
  indptr_.push_back(static_cast<std::int32_t>(end));
  const std::int64_t last = tokens == 0 ? 0 : tokens - (used - 1) * page_size_;
  last_page_tokens_.push_back(static_cast<std::int32_t>(last));
}

PageTableView PageTableAssembly::view() const {
  return {.indptr = indptr_,
          .pages = std::span(pages_).first(pages_used_),
          .last_page_tokens = last_page_tokens_,
          .page_size = page_size_};
}

}  // namespace stemma
