// RequestTable: for each request that runs, the pages of its tokens, in token order.
//
// A row is a list of page ids. It owns none of them: pages belong to the request's PrefixLock and
// OwnedPages (I2). A request keeps its row from admission to its end, however many chunks its
// prompt is computed in.
//
// Thread:     engine thread only.                      Invariants: I2 (docs/INVARIANTS.md).
// Memory:     4 bytes x rows x pages a row, fixed at construction.
// Cost:       taking and giving back a row O(1); everything else O(pages written).
// Not here:   who owns pages (PageAllocator, PrefixCache), when rows are written (cache/).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stemma/ids.h"
#include "stemma/page_table.h"

namespace stemma {

class RequestTable;

// One row, held. Move-only; gives the row back when destroyed. Must not outlive its table.
class [[nodiscard]] RequestRow {
 public:
  // Holds no row.
  RequestRow() noexcept = default;
  RequestRow(RequestRow&& other) noexcept;
  RequestRow& operator=(RequestRow&& other) noexcept;
  RequestRow(const RequestRow&) = delete;
  RequestRow& operator=(const RequestRow&) = delete;
  ~RequestRow();

  bool valid() const noexcept { return table_ != nullptr; }
  RowId id() const noexcept { return id_; }

  // Gives ownership up: the caller now owes the row to RequestTable::adopt. REQUIRES: valid().
  RowId release() noexcept;

  // Gives the row back now instead of at destruction.
  void reset() noexcept;

 private:
  friend class RequestTable;
  RequestRow(RequestTable* table, RowId id) noexcept : table_(table), id_(id) {}

  RequestTable* table_ = nullptr;
  RowId id_;
};

class RequestTable {
 public:
  // REQUIRES: rows >= 1 and pages_max >= 1; their product addresses memory.
  struct Extent {
    std::int64_t rows = 0;
    std::int64_t pages_max = 0;  // a row's longest list
  };
  explicit RequestTable(const Extent& extent);
  // REQUIRES: every row was given back.
  ~RequestTable();
  RequestTable(const RequestTable&) = delete;
  RequestTable& operator=(const RequestTable&) = delete;

  // An empty row, or nullopt if all are held.
  std::optional<RequestRow> try_take();

  // Gives an empty row to each entry that holds none; an entry that holds one keeps it, pages and
  // all. All or none: false, and no entry changed, if too few rows are free.
  bool try_take(std::span<RequestRow> rows);

  // Takes back into ownership a row that `RequestRow::release` gave up. REQUIRES: `row` is held.
  RequestRow adopt(RowId row);

  // The pages of a held row. Writable so that a commit can re-point them (I2).
  std::span<const PageId> pages(RowId row) const;
  std::span<PageId> pages(RowId row);

  // Makes the row longer by `pages`; the new part is returned and is the caller's to fill.
  // REQUIRES: it then has at most pages_max() pages.
  std::span<PageId> grow(RowId row, std::int64_t pages);
  // Forgets all but the first `pages` of the row. REQUIRES: it has as many.
  void shrink(RowId row, std::int64_t pages);

  std::int64_t rows() const noexcept { return static_cast<std::int64_t>(length_.size()); }
  std::int64_t free_rows() const noexcept { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t pages_max() const noexcept { return pages_max_; }

 private:
  friend class RequestRow;
  static constexpr std::int64_t kNotHeld = -1;

  void give_back(RowId row) noexcept;
  PageId* row_begin(RowId row);

  std::int64_t pages_max_;
  std::vector<PageId> pages_;         // [rows, pages_max]
  std::vector<std::int64_t> length_;  // pages in each row, kNotHeld for a free one
  std::vector<RowId> free_;           // a stack: the row given back last is handed out first
};

// Writes the slots of positions first_position … of a request into `out`, one for each entry.
// REQUIRES: `pages` cover all of those positions.
void write_slots(std::span<const PageId> pages, std::int64_t page_size, std::int64_t first_position,
                 std::span<SlotId> out);

// Builds the PageTableView of one step. Sized once; adding allocates nothing.
class PageTableAssembly {
 public:
  struct Extent {
    std::int64_t requests_max = 0;
    std::int64_t pages_max = 0;  // of all requests of a step together
    std::int64_t page_size = 0;
  };
  explicit PageTableAssembly(const Extent& extent);

  // Forgets every request.
  void clear();

  // The next request: its first `tokens` tokens, which lie in the first pages of `pages`.
  // REQUIRES: `pages` hold that many tokens; there is room for one more request.
  void add(std::span<const PageId> pages, std::int64_t tokens);

  // Valid until the next clear or add.
  PageTableView view() const;

 private:
  std::int64_t page_size_;
  std::vector<std::int32_t> indptr_;
  // As long as any step has needed it, so that a step only copies into it.
  std::vector<PageId> pages_;
  std::size_t pages_used_ = 0;  // of this step
  std::vector<std::int32_t> last_page_tokens_;
};

}  // namespace stemma
