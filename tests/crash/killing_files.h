// KillingFiles: files of which one operation ends the process as kill -9 does: before it, after it,
// or with half of it done.
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/disk_files.h"

namespace stemma {

// Where in the life of a store its process ends: at the `countdown`-th operation of this name.
struct KillPoint {
  enum class Moment { kBefore, kHalfway, kAfter };
  std::string operation;  // "create", "allocate", "rename", "remove", "sync", "sync_directory",
                          // "write_slab", "write_index"; empty: nowhere
  int countdown = 0;
  Moment moment = Moment::kBefore;
};

class KillingFiles final : public DiskFiles {
 public:
  KillingFiles(std::unique_ptr<DiskFiles> inner, KillPoint point)
      : inner_(std::move(inner)), point_(std::move(point)) {}

  const std::string& directory() const override { return inner_->directory(); }
  Result<std::vector<DiskEntry>> list() override { return inner_->list(); }
  Result<DiskFileId> open(const std::string& name, DiskAccess access,
                          std::int64_t deadline_us) override {
    auto opened = inner_->open(name, access, deadline_us);
    if (opened.ok()) note(*opened, access);
    return opened;
  }
  Result<DiskFileId> create(const std::string& name, DiskAccess access,
                            std::int64_t deadline_us) override {
    auto created = at("create", [&] { return inner_->create(name, access, deadline_us); });
    if (created.ok()) note(*created, access);
    return created;
  }
  Status allocate(DiskFileId file, std::int64_t bytes, std::int64_t deadline_us) override {
    return at("allocate", [&] { return inner_->allocate(file, bytes, deadline_us); });
  }
  Status rename(const std::string& from, const std::string& to, std::int64_t deadline_us) override {
    return at("rename", [&] { return inner_->rename(from, to, deadline_us); });
  }
  Status remove(const std::string& name, std::int64_t deadline_us) override {
    return at("remove", [&] { return inner_->remove(name, deadline_us); });
  }
  Status sync(DiskFileId file, std::int64_t deadline_us) override {
    return at("sync", [&] { return inner_->sync(file, deadline_us); });
  }
  Status sync_directory(std::int64_t deadline_us) override {
    return at("sync_directory", [&] { return inner_->sync_directory(deadline_us); });
  }
  void read(DiskLane lane, std::span<DiskRead> reads, std::int64_t deadline_us) override {
    inner_->read(lane, reads, deadline_us);
  }
  std::int64_t overdue(DiskLane lane) override { return inner_->overdue(lane); }
  void close(DiskFileId file) override { inner_->close(file); }
  bool is_held(DiskFileId file) override { return inner_->is_held(file); }
  std::optional<std::int64_t> size_bytes(DiskFileId file) override {
    return inner_->size_bytes(file);
  }
  std::int64_t wall_time_s() override { return inner_->wall_time_s(); }

 private:
  void write_all(std::span<DiskWrite> writes, std::int64_t deadline_us) override {
    if (writes.empty()) return;
    const bool direct = direct_[writes[0].file.index()];
    const std::string operation = direct ? "write_slab" : "write_index";
    if (chosen(operation) && point_.moment == KillPoint::Moment::kHalfway) {
      write_half(writes, direct, deadline_us);
      die();
    }
    const Status written = at(operation, [&] {
      inner_->write(writes, deadline_us);
      return Status();
    });
    ignore_error(written, "each write has its outcome");
  }
  bool chosen(const std::string& operation) const {
    return operation == point_.operation && point_.countdown == 0;
  }
  [[noreturn]] static void die() {
    ::raise(SIGKILL);
    for (;;) {
    }
  }
  template <typename Operation>
  auto at(const std::string& operation, Operation&& run) -> decltype(run()) {
    const bool now = chosen(operation);
    if (operation == point_.operation) --point_.countdown;
    if (now && point_.moment == KillPoint::Moment::kBefore) die();
    auto result = run();
    if (now) die();
    return result;
  }
  // Half of the pieces, the last of them cut in the middle.
  void write_half(std::span<DiskWrite> writes, bool direct, std::int64_t deadline_us) {
    std::vector<DiskWrite> half(writes.begin(), writes.begin() + std::ssize(writes) / 2 + 1);
    const std::size_t grain = direct ? 4096 : 1;
    half.back().bytes = half.back().bytes.first(half.back().bytes.size() / 2 / grain * grain);
    inner_->write(half, deadline_us);
  }
  void note(DiskFileId file, DiskAccess access) {
    if (direct_.size() <= file.index()) direct_.resize(file.index() + 1);
    direct_[file.index()] = access == DiskAccess::kDirect;
  }

  std::unique_ptr<DiskFiles> inner_;
  KillPoint point_;
  std::vector<bool> direct_;
};

}  // namespace stemma
