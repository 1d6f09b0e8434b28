// SimulatedDisk: a directory in memory that behaves as badly as disks may, the same way for the
// same seed: it forgets and tears what was not synced when it crashes, fills up, fails, hangs,
// returns flipped bits and other places' bytes.
//
// Thread:     one.
// Memory:     twice the files.
// Cost:       copies; a sync copies the file.
// Not here:   anything that serves.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "stemma/result.h"
#include "store/disk_files.h"
#include "store/simulated_faults.h"
#include "store/simulated_file.h"

namespace stemma {

class SimulatedDisk {
 public:
  using File = SimulatedFile;

  SimulatedDisk(std::uint64_t seed, FakeClock& clock) : prng_(seed), clock_(clock) {}

  // The view of a process that starts now.
  std::unique_ptr<DiskFiles> open();

  // The power goes: each piece of `tear_bytes` that was written and not synced is there or not;
  // names that were not synced are there up to some point of their order. Whoever had the directory
  // open can do nothing more.
  void crash(std::size_t tear_bytes) {
    for (const Late& late : late_) {
      if (late.effect && prng_.below(2) == 0) late.effect();
    }
    late_.clear();
    ++life_;
    names_ = name_history_[static_cast<std::size_t>(prng_.below(std::ssize(name_history_)))];
    name_history_ = {names_};
    for (auto& file : files_) file->lose_power(tear_bytes, prng_);
  }

  // What hangs ends now, in any order; who asks for what is overdue learns it.
  void let_go() {
    std::shuffle(late_.begin(), late_.end(), prng_);
    for (Late& late : late_) {
      if (const auto effect = std::exchange(late.effect, nullptr)) effect();
    }
  }

  SimulatedFaults faults;
  std::int64_t operations = 0;   // asked for so far
  std::int64_t wall_time_s = 0;  // jumps at a test's will
  // Called once, while the next read on its own lane is under way.
  std::function<void()> while_reading;

  // A file's bytes as they lie there, for tests that damage them; null if there is none.
  File* file_or_null(const std::string& name) {
    const auto found = names_.find(name);
    return found == names_.end() ? nullptr : files_[found->second].get();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, file] : names_) all.push_back(name);
    return all;
  }
  std::int64_t used_bytes() const {
    std::int64_t bytes = 0;
    std::vector<bool> counts(files_.size());
    for (const auto& [name, file] : names_) counts[file] = true;
    for (const Late& late : late_) {
      if (late.effect && late.file.valid()) counts[late.file.index()] = true;
    }
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (counts[i] || files_[i]->opened > 0) bytes += std::ssize(files_[i]->now);
    }
    return bytes;
  }

 private:
  friend class SimulatedFiles;
  using Names = std::map<std::string, std::size_t>;
  // An operation that was given up.
  struct Late {
    DiskLane lane = DiskLane::kWrite;
    DiskFileId file;               // none: of the directory
    std::function<void()> effect;  // empty: it has ended
  };

  Prng prng_;
  FakeClock& clock_;
  int life_ = 0;  // grows with each crash; views of an earlier one can do nothing more
  std::vector<std::unique_ptr<File>> files_;
  Names names_;
  std::vector<Names> name_history_ = {{}};  // since the directory was synced
  std::vector<Late> late_;
};

class SimulatedFiles final : public DiskFiles {
 public:
  explicit SimulatedFiles(SimulatedDisk& disk) : disk_(disk), life_(disk.life_) {}
  ~SimulatedFiles() override {
    if (life_ != disk_.life_) return;
    for (const DiskFileId file : opened_) --of(file).opened;
  }
  SimulatedFiles(const SimulatedFiles&) = delete;
  SimulatedFiles& operator=(const SimulatedFiles&) = delete;

  const std::string& directory() const override { return directory_; }
  Result<std::vector<DiskEntry>> list() override {
    std::vector<DiskEntry> entries;
    for (const auto& [name, file] : disk_.names_) {
      entries.push_back({name, size_bytes(DiskFileId(static_cast<std::int32_t>(file)))});
    }
    return entries;
  }
  Result<DiskFileId> open(const std::string& name, DiskAccess, std::int64_t deadline_us) override {
    STEMMA_RETURN_IF_ERROR(run(DiskVerb::kOpen, deadline_us, [] {}));
    const auto found = disk_.names_.find(name);
    if (found == disk_.names_.end()) return Error{ErrorCode::kNotFound, name + ": no such file"};
    return note_open(found->second);
  }
  Result<DiskFileId> create(const std::string& name, DiskAccess,
                            std::int64_t deadline_us) override {
    STEMMA_RETURN_IF_ERROR(run(DiskVerb::kCreate, deadline_us, [&disk = disk_, name] {
      disk.files_.push_back(std::make_unique<SimulatedDisk::File>());
      disk.names_[name] = disk.files_.size() - 1;
      disk.name_history_.push_back(disk.names_);
    }));
    return note_open(disk_.names_[name]);
  }
  Status allocate(DiskFileId file, std::int64_t bytes, std::int64_t deadline_us) override {
    SimulatedDisk::File& target = of(file);
    if (!fits(bytes - std::ssize(target.now))) return no_space();
    return run(
        DiskVerb::kAllocate, deadline_us,
        [&target, bytes] { target.now.resize(static_cast<std::size_t>(bytes)); }, file);
  }
  Status rename(const std::string& from, const std::string& to, std::int64_t deadline_us) override {
    return run(DiskVerb::kRename, deadline_us, [&disk = disk_, from, to] {
      const auto found = disk.names_.find(from);
      if (found == disk.names_.end()) return;
      const std::size_t file = found->second;
      disk.names_.erase(found);
      disk.names_[to] = file;
      disk.name_history_.push_back(disk.names_);
    });
  }
  Status remove(const std::string& name, std::int64_t deadline_us) override {
    return run(DiskVerb::kRemove, deadline_us, [&disk = disk_, name] {
      disk.names_.erase(name);
      disk.name_history_.push_back(disk.names_);
    });
  }
  Status sync(DiskFileId file, std::int64_t deadline_us) override {
    SimulatedDisk::File& target = of(file);
    return run(
        DiskVerb::kSync, deadline_us, [&target] { target.durable = target.now; }, file);
  }
  Status sync_directory(std::int64_t deadline_us) override {
    return run(DiskVerb::kSyncDirectory, deadline_us,
               [&disk = disk_] { disk.name_history_ = {disk.names_}; });
  }
  void read(DiskLane lane, std::span<DiskRead> reads, std::int64_t deadline_us) override {
    if (lane == DiskLane::kRead && disk_.while_reading) {
      std::exchange(disk_.while_reading, nullptr)();
    }
    lane_ = lane;
    for (DiskRead& read : reads) {
      const Status status = run(
          DiskVerb::kRead, deadline_us, [] {}, read.file);
      set_outcome(status, read.outcome, read.sys_errno);
      if (read.outcome == DiskOutcome::kDone) fill(read);
    }
    lane_ = DiskLane::kWrite;
  }
  std::int64_t overdue(DiskLane lane) override {
    std::erase_if(disk_.late_, [lane](const SimulatedDisk::Late& late) {
      return late.lane == lane && !late.effect;
    });
    return std::ranges::count(disk_.late_, lane, &SimulatedDisk::Late::lane);
  }
  void close(DiskFileId file) override {
    const auto found = std::ranges::find(opened_, file);
    if (life_ != disk_.life_ || found == opened_.end()) return;
    opened_.erase(found);
    --of(file).opened;
  }
  bool is_held(DiskFileId file) override {
    return std::ranges::count(disk_.late_, file, &SimulatedDisk::Late::file) > 0;
  }
  std::optional<std::int64_t> size_bytes(DiskFileId file) override {
    return disk_.faults.tells_sizes ? std::optional(std::ssize(of(file).now)) : std::nullopt;
  }
  std::int64_t wall_time_s() override { return disk_.wall_time_s; }

 private:
  void write_all(std::span<DiskWrite> writes, std::int64_t deadline_us) override {
    for (DiskWrite& write : writes) {
      SimulatedDisk::File& target = of(write.file);
      const auto offset = static_cast<std::size_t>(write.offset_bytes);
      const std::size_t end = offset + write.bytes.size();
      if (end > target.now.size() && !fits(static_cast<std::int64_t>(end - target.now.size()))) {
        write.outcome = DiskOutcome::kFailed;
        write.sys_errno = disk_.faults.full_errno;
        continue;
      }
      const std::vector<std::byte> bytes(write.bytes.begin(), write.bytes.end());
      const auto effect = [&target, offset, end, bytes] {
        if (end > target.now.size()) target.now.resize(end);
        std::ranges::copy(bytes, target.now.begin() + static_cast<std::ptrdiff_t>(offset));
      };
      const Status status = run(DiskVerb::kWrite, deadline_us, effect, write.file);
      set_outcome(status, write.outcome, write.sys_errno);
    }
  }
  DiskFileId note_open(std::size_t file) {
    ++disk_.files_[file]->opened;
    return opened_.emplace_back(static_cast<std::int32_t>(file));
  }
  SimulatedDisk::File& of(DiskFileId file) { return *disk_.files_[file.index()]; }
  bool fits(std::int64_t more) { return disk_.used_bytes() + more <= disk_.faults.space_bytes; }
  Error no_space() const { return {ErrorCode::kIo, "no space", disk_.faults.full_errno}; }

  // One operation whose effect is `effect`: now, later, or not at all. What comes later may come
  // when this view is gone.
  Status run(DiskVerb verb, std::int64_t deadline_us, std::function<void()> effect,
             DiskFileId file = {}) {
    const SimulatedFaults& faults = disk_.faults;
    if (life_ != disk_.life_) return Error{ErrorCode::kIo, "the power is off", EIO};
    const std::int64_t number = disk_.operations++;
    if (number >= faults.power_off_at) return Error{ErrorCode::kIo, "the power is off", EIO};
    const bool chosen = number == faults.fail_at || faults.failing == verb;
    if (chosen) return Error{ErrorCode::kIo, "injected fault", faults.sys_errno};
    if (share(faults.error_share)) return Error{ErrorCode::kIo, "injected fault", EIO};
    const std::int64_t left_us = deadline_us - disk_.clock_.now_us();
    if (share(faults.hang_share) || faults.latency_us > left_us) {
      if (left_us > 0) disk_.clock_.advance_us(left_us);
      const bool starts = left_us > 0 || faults.starts_late;
      if (starts) disk_.late_.push_back({lane_, file, std::move(effect)});
      return Error{ErrorCode::kDeadline, "overdue"};
    }
    disk_.clock_.advance_us(faults.latency_us);
    effect();
    return {};
  }
  bool share(double of_operations) {
    return of_operations > 0 && disk_.prng_.unit() < of_operations;
  }
  static void set_outcome(const Status& status, DiskOutcome& outcome, int& sys_errno) {
    outcome = DiskOutcome::kDone;
    if (status.ok()) return;
    const bool overdue = status.error().code == ErrorCode::kDeadline;
    outcome = overdue ? DiskOutcome::kOverdue : DiskOutcome::kFailed;
    sys_errno = status.error().sys_errno;
  }
  void fill(DiskRead& read) {
    const std::vector<std::byte>& bytes = of(read.file).now;
    auto offset = static_cast<std::size_t>(read.offset_bytes);
    const std::size_t size = read.bytes.size();
    if (share(disk_.faults.misdirected_share) && bytes.size() > size) {
      offset = static_cast<std::size_t>(
                   disk_.prng_.below(static_cast<std::int64_t>(bytes.size() / size))) *
               size;
    }
    if (offset + size > bytes.size()) {
      read.outcome = DiskOutcome::kShort;
      return;
    }
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), size, read.bytes.begin());
    if (!share(disk_.faults.flip_share)) return;
    const auto at = static_cast<std::size_t>(disk_.prng_.below(std::ssize(read.bytes)));
    read.bytes[at] ^= std::byte{1} << disk_.prng_.below(8);
  }

  std::string directory_ = "simulated";
  SimulatedDisk& disk_;
  int life_;
  std::vector<DiskFileId> opened_;
  DiskLane lane_ = DiskLane::kWrite;
};

inline std::unique_ptr<DiskFiles> SimulatedDisk::open() {
  return std::make_unique<SimulatedFiles>(*this);
}

}  // namespace stemma
