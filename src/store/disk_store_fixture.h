// DiskStoreFixture: a disk store over a simulated disk, and the verbs of its tests.
//
// Thread:     one.
// Memory:     that of the simulated disk.
// Cost:       copies.
// Not here:   anything that serves.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "device/buffer.h"
#include "store/disk_page_store.h"
#include "store/simulated_disk.h"
#include "tier/page_frame_fixture.h"

namespace stemma {

// What a component counts, by name.
class MetricValues final : public MetricVisitor {
 public:
  explicit MetricValues(const PageStore& store) { store.visit_metrics(*this); }
  void counter(std::string_view name, std::int64_t value) override {
    values_[std::string(name)] = value;
  }
  void gauge(std::string_view name, std::int64_t value) override {
    values_[std::string(name)] = value;
  }
  std::int64_t operator[](const std::string& name) const {
    return values_.at("stemma_disk_" + name);
  }

 private:
  std::map<std::string, std::int64_t> values_;
};

// Whether a frame that a store returned is, after the verification that every reader makes, good to
// use; and if so, whether it is the right one. Anything good to use that is not right is a wrong
// byte served.
enum class Served { kMiss, kRefusedByReader, kRight, kWrong };

inline Served serve(PageStore& store, const TestPage& page, std::int64_t deadline_us) {
  Buffer frame = Buffer::allocate(page.frame().size()).value();
  PageRead read{page.key(), frame.as<std::byte>()};
  store.read(std::span(&read, 1), deadline_us);
  if (read.verdict != PageVerdict::kDone) return Served::kMiss;
  const auto view = check_frame(frame.as<std::byte>(), page.format(), page.identity());
  if (!view.ok() || !check_body(*view).ok()) return Served::kRefusedByReader;
  const auto body = page.frame().subspan(frame_body_offset(page.format()), view->body.size());
  return std::ranges::equal(view->body, body) ? Served::kRight : Served::kWrong;
}

inline PageVerdict put(PageStore& store, const TestPage& page, std::int64_t deadline_us) {
  PageWrite write{page.key(), page.frame()};
  store.write(std::span(&write, 1), deadline_us);
  return write.verdict;
}

class DiskStoreFixture {
 public:
  static constexpr std::int64_t kBytesMax = 1 << 20;  // room for 92 small frames beside the index

  explicit DiskStoreFixture(std::uint64_t seed) : disk(seed, clock) {}

  bool open(std::int64_t bytes_max = kBytesMax, std::int64_t slab_bytes = 64 << 10) {
    store.reset();
    auto opened =
        DiskPageStore::open(disk.open(), clock, {.bytes_max = bytes_max, .slab_bytes = slab_bytes});
    if (opened.ok()) store = *std::move(opened);
    return store != nullptr;
  }
  // The power goes and comes back.
  void crash(std::size_t tear_bytes = 512) {
    disk.crash(tear_bytes);
    store.reset();
  }
  // The store ends, and its index goes.
  void lose_index() {
    store.reset();
    STEMMA_CHECK(disk.open()->remove("index", soon()).ok(), "it can be removed");
  }

  std::int64_t soon() const { return clock.now_us() + 1'000'000; }
  PageVerdict put(const TestPage& page) { return stemma::put(*store, page, soon()); }
  Served serve(const TestPage& page) { return stemma::serve(*store, page, soon()); }
  // Of these pages, in their order.
  std::vector<PageVerdict> put_all(std::span<const TestPage> pages) {
    std::vector<PageWrite> writes;
    for (const TestPage& page : pages) writes.push_back({page.key(), page.frame()});
    store->write(writes, soon());
    std::vector<PageVerdict> verdicts;
    for (const PageWrite& write : writes) verdicts.push_back(write.verdict);
    return verdicts;
  }
  std::int64_t lookup(std::span<const TestPage> pages) {
    std::vector<PageKey> keys;
    for (const TestPage& page : pages) keys.push_back(page.key());
    return store->lookup(keys, soon()).value();
  }
  std::int64_t count_right(std::span<const TestPage> pages) {
    std::int64_t right = 0;
    for (const TestPage& page : pages) right += serve(page) == Served::kRight ? 1 : 0;
    return right;
  }
  std::int64_t metric(const std::string& name) const { return MetricValues(*store)[name]; }

  FakeClock clock;
  SimulatedDisk disk;
  std::unique_ptr<DiskPageStore> store;
};

inline std::vector<TestPage> make_pages(const PageFormat& format, std::uint64_t seed,
                                        std::int64_t pages) {
  std::vector<TestPage> made;
  for (std::int64_t i = 0; i < pages; ++i) made.emplace_back(format, seed, i);
  return made;
}

}  // namespace stemma
