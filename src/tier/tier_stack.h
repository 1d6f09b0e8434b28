// TierStack: host memory and page stores below a device pool, with threads that move pages.
//
// Thread:     as LowerTiers.
// Memory:     the host pool and staging frames, when opened.
// Cost:       touching the host pool once.
// Not here:   which pages move (cache/tiering), opening stores (whoever knows their flags).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_lock.h"
#include "base/thread_pool.h"
#include "device/buffer.h"
#include "pool/host_pool.h"
#include "stemma/kv_pool.h"
#include "stemma/lower_tiers.h"
#include "stemma/result.h"
#include "tier/host_image_file.h"
#include "tier/page_work.h"
#include "tier/purge_file.h"

namespace stemma {

class TierStack final : public LowerTiers {
  struct Key {};

 public:
  struct Options {
    std::int64_t host_bytes = 0;  // at least one page's
    KvLayout host_layout = KvLayout::kPageFirst;
    PageCodec codec = PageCodec::kPlain;  // of pages in host memory and in stores
    // That host memory survives in, that of layers with a window beside it; empty: none.
    std::string host_file = {};
    // Where host memory comes from.
    std::function<Result<Buffer>(std::size_t size_bytes)> allocate = Buffer::allocate;
  };

  // Whether what lies where host memory's files are to be may be replaced by them
  // (check_host_image_path), and nobody else has them (a lock beside them): two lives would write
  // over each other's, and bring back what one was asked to forget. `windowed`: layers with a
  // window have one too. open asks the same.
  static Status check_host_files(const Options& options, bool windowed);

  // kInvalidArgument, kOutOfMemory, kIo. Device pools and `clock` must outlive it; `threads` only
  // helps to touch the memory. `stores`: nearest first. With `windowed_or_null`, the pool of layers
  // with a window, host memory is shared out as the device's is: as many pages of each, also where
  // less is had than was asked for.
  static Result<std::unique_ptr<TierStack>> open(const Options& options, KvPool& device,
                                                 std::vector<std::unique_ptr<PageStore>> stores,
                                                 ThreadPool& threads, const Clock& clock,
                                                 KvPool* windowed_or_null = nullptr);
  explicit TierStack(Key) {}  // for open

  std::int64_t host_pages() const override { return host_->pages(); }
  std::int64_t host_windowed_pages() const override {
    return windowed_host_ == nullptr ? 0 : windowed_host_->pages();
  }
  // What a cache over this is to forget outlives it there. Before there is one.
  void set_purge_file(std::unique_ptr<PurgeFile> file) { purge_file_ = std::move(file); }

  std::span<PageStore* const> stores() const override { return store_list_; }
  std::unique_ptr<TransferLanes> open_lanes(std::int64_t jobs_max) override;
  const HostImage* host_image_or_null() const override {
    return image_.has_value() ? &*image_ : nullptr;
  }
  const HostImage* windowed_host_image_or_null() const override {
    return windowed_image_.has_value() ? &*windowed_image_ : nullptr;
  }
  PurgeFile* purge_file_or_null() override { return purge_file_.get(); }
  void describe(const NamespaceDigest& digest, std::string_view description) override;

  HostPool& host() noexcept { return *host_; }
  HostPool* windowed_host_or_null() noexcept { return windowed_host_.get(); }
  TransferWork& work() noexcept { return *work_; }

 private:
  void name_host_files(const Options& options, const KvPool& device,
                       const KvPool* windowed_or_null);
  Status open_host(const Options& options, KvPool& device, KvPool* windowed_or_null,
                   ThreadPool& threads);
  struct HostShares {
    std::int64_t pages = 0;
    double windowed_share = 0;  // windowed pages for each page
  };
  Status open_both(const Options& options, KvPool& device, KvPool& windowed,
                   const HostShares& wanted, ThreadPool& threads);
  Status try_open_both(const Options& options, KvPool& device, KvPool& windowed, std::int64_t pages,
                       std::int64_t windowed_pages, ThreadPool& threads);

  std::unique_ptr<HostPool> host_;
  std::unique_ptr<HostPool> windowed_host_;  // nullptr: no layers have a window
  FileLock host_file_lock_;
  std::optional<HostImage> image_;
  std::optional<HostImage> windowed_image_;
  bool named_ = false;  // their labels have the model
  std::unique_ptr<PurgeFile> purge_file_;
  std::vector<std::unique_ptr<PageStore>> stores_;
  std::vector<PageStore*> store_list_;
  std::unique_ptr<PageWork> work_;
};

}  // namespace stemma
