// A disk store over files that anybody may write to: records of the index that lie under a right
// checksum, records and slabs that are cut, grown, copied and overwritten, between puts, reads,
// removals, purges and restarts. It opens or says why not, and never serves another page's bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "prefix/page_key.h"
#include "stemma/log.h"
#include "store/disk_index.h"
#include "store/disk_store_fixture.h"

namespace {

constexpr std::size_t kCell = static_cast<std::size_t>(stemma::kIndexCellBytes);
constexpr std::int64_t kPages = 8;
constexpr std::size_t kFileBytesMax = std::size_t{2} << 20;

// The input's bytes one after the other; zeros behind them.
class Input {
 public:
  Input(const std::uint8_t* bytes, std::size_t size) : left_(bytes, size) {}
  bool empty() const { return left_.empty(); }
  template <typename T>
  T next() {
    T value = {};
    const std::size_t size = std::min(sizeof(T), left_.size());
    std::memcpy(&value, left_.data(), size);
    left_ = left_.subspan(size);
    return value;
  }
  std::size_t below(std::size_t end) { return next<std::uint32_t>() % end; }

 private:
  std::span<const std::uint8_t> left_;
};

class Trial {
 public:
  explicit Trial(Input input)
      : input_(input), pages_(stemma::make_pages(stemma::small_format(), 1, kPages)) {
    disk_.open();
  }

  void run() {
    for (int i = 0; i < 100 && !input_.empty(); ++i) step();
    disk_.open();
    for (const stemma::TestPage& page : pages_) serve(page);
  }

 private:
  const stemma::TestPage& page() { return pages_[input_.below(pages_.size())]; }

  void step() {
    const auto what = input_.next<std::uint8_t>() % 12;
    if (what >= 6) return damage(what);
    if (what == 5 || disk_.store == nullptr) return restart();
    if (what < 2) {
      disk_.put(page());
    } else if (what == 2) {
      serve(page());
    } else if (what == 3) {
      const stemma::TestPage& gone = page();
      const stemma::PageRemoval removal{gone.key(), gone.frame()};
      disk_.store->remove(std::span(&removal, 1), disk_.soon());
    } else {
      purge();
    }
  }

  void serve(const stemma::TestPage& page) {
    if (disk_.store == nullptr) return;
    if (disk_.serve(page) == stemma::Served::kWrong) __builtin_trap();
    disk_.lookup(pages_);
  }

  void purge() {
    const auto family = stemma::family_of(page().identity().namespace_digest);
    const bool all = input_.next<std::uint8_t>() % 2 == 0;
    disk_.store->purge(std::span(&family, all ? 0 : 1), disk_.soon());
  }

  void restart() {
    if (input_.next<std::uint8_t>() % 2 == 0) disk_.crash();
    disk_.open();
  }

  void damage(int what) {
    const std::vector<std::string> names = disk_.disk.names();
    if (names.empty()) return;
    const bool of_index = what >= 9;
    auto* const file =
        disk_.disk.file_or_null(of_index ? "index" : names[input_.below(names.size())]);
    if (file == nullptr || file->now.empty()) return;
    if (what == 6) {
      file->now.resize(input_.below(kFileBytesMax));
    } else if (of_index && file->now.size() >= kCell) {
      what == 9 ? copy_cell(file->now) : lie(file->now);
    } else {
      overwrite(file->now);
    }
    file->durable = file->now;
  }

  void overwrite(std::vector<std::byte>& bytes) {
    const auto value = input_.next<std::array<std::byte, 8>>();
    const std::size_t place = input_.below(bytes.size());
    std::copy_n(value.begin(), std::min(value.size(), bytes.size() - place),
                bytes.begin() + static_cast<std::ptrdiff_t>(place));
  }

  std::span<std::byte> cell_of(std::vector<std::byte>& bytes) {
    return std::span(bytes).subspan(input_.below(bytes.size() / kCell) * kCell, kCell);
  }

  // A record once more, where another was or behind all.
  void copy_cell(std::vector<std::byte>& bytes) {
    const std::span<std::byte> source = cell_of(bytes);
    const std::vector<std::byte> cell(source.begin(), source.end());
    if (input_.next<std::uint8_t>() % 2 == 0 && bytes.size() < kFileBytesMax) {
      bytes.insert(bytes.end(), cell.begin(), cell.end());
    } else {
      std::ranges::copy(cell, cell_of(bytes).begin());
    }
  }

  // Another value in a record whose checksum is right all the same.
  void lie(std::vector<std::byte>& bytes) {
    const std::span<std::byte> cell = cell_of(bytes);
    const auto value = input_.next<std::array<std::byte, 4>>();
    const std::size_t place = 8 + 4 * input_.below((kCell - 8) / 4);
    std::ranges::copy(value, cell.begin() + static_cast<std::ptrdiff_t>(place));
    const std::uint32_t sum = stemma::crc32c(cell.subspan(8));
    std::memcpy(cell.data() + 4, &sum, sizeof(sum));
  }

  Input input_;
  std::vector<stemma::TestPage> pages_;
  stemma::DiskStoreFixture disk_{1};
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  stemma::set_log_level(stemma::LogLevel::kError);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  Trial(Input(bytes, size)).run();
  return 0;
}
