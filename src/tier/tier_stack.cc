#include "tier/tier_stack.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/memory_room.h"
#include "stemma/log.h"

namespace stemma {

namespace {

// Of a page below the device.
std::int64_t stored_bytes(const KvPool& device, PageCodec codec) {
  const PageFormat format = page_format(device, codec);
  return format.layers * format.layer_bytes;
}

Result<std::unique_ptr<HostPool>> make_host_pool(const TierStack::Options& options,
                                                 const KvPool& device, std::int64_t pages,
                                                 std::int64_t pages_min, ThreadPool& threads) {
  HostPoolOptions host;
  host.pages = pages;
  host.pages_min = pages_min;
  host.layers = device.shape().layers;
  host.layer_bytes = device.layer_bytes();
  host.layout = options.host_layout;
  host.codec = options.codec;
  host.device_shape = device.shape();
  host.allocate = options.allocate;
  return HostPool::create(host, threads);
}

std::string windows_file(const std::string& host_file) {
  return host_file + ".windows";
}

Result<FileLock> lock_host_files(const std::string& host_file) {
  return FileLock::take(host_file + ".lock", "another process has this host file");
}

}  // namespace

Status TierStack::check_host_files(const Options& options, bool windowed) {
  if (options.host_file.empty()) return {};
  STEMMA_RETURN_IF_ERROR(check_host_image_path(options.host_file));
  if (windowed) STEMMA_RETURN_IF_ERROR(check_host_image_path(windows_file(options.host_file)));
  const auto free = lock_host_files(options.host_file);
  return free.ok() ? Status() : Status(free.error());
}

Result<std::unique_ptr<TierStack>> TierStack::open(const Options& options, KvPool& device,
                                                   std::vector<std::unique_ptr<PageStore>> stores,
                                                   ThreadPool& threads, const Clock& clock,
                                                   KvPool* windowed_or_null) {
  STEMMA_RETURN_IF_ERROR(check_host_files(options, windowed_or_null != nullptr));
  auto stack = std::make_unique<TierStack>(Key());
  STEMMA_RETURN_IF_ERROR(stack->open_host(options, device, windowed_or_null, threads));
  if (!options.host_file.empty()) {
    STEMMA_ASSIGN_OR_RETURN(stack->host_file_lock_, lock_host_files(options.host_file));
    stack->name_host_files(options, device, windowed_or_null);
  }
  stack->stores_ = std::move(stores);
  for (const auto& store : stack->stores_) stack->store_list_.push_back(store.get());
  STEMMA_ASSIGN_OR_RETURN(
      stack->work_, PageWork::open({.device = device,
                                    .host = *stack->host_,
                                    .stores = stack->store_list_,
                                    .clock = clock,
                                    .windowed = {windowed_or_null, stack->windowed_host_.get()}}));
  return stack;
}

void TierStack::name_host_files(const Options& options, const KvPool& device,
                                const KvPool* windowed_or_null) {
  const auto label = [&](const KvPool& pool) {
    return HostImageLabel{.format = page_format(pool, options.codec), .model = {}};
  };
  image_.emplace(HostImage{*host_, options.host_file, label(device)});
  if (windowed_or_null == nullptr) return;
  windowed_image_.emplace(
      HostImage{*windowed_host_, windows_file(options.host_file), label(*windowed_or_null)});
}

Status TierStack::open_host(const Options& options, KvPool& device, KvPool* windowed_or_null,
                            ThreadPool& threads) {
  std::int64_t windowed_bytes = 0;
  double share = 0;  // windowed pages for each page
  if (windowed_or_null != nullptr) {
    windowed_bytes = stored_bytes(*windowed_or_null, options.codec);
    share = static_cast<double>(windowed_or_null->shape().pages) /
            static_cast<double>(device.shape().pages);
  }
  const std::int64_t page_bytes = stored_bytes(device, options.codec);
  const std::int64_t least_bytes = page_bytes + windowed_bytes;
  if (options.host_bytes < least_bytes) {
    return Error{ErrorCode::kInvalidArgument, "host_bytes must hold at least one page of " +
                                                  std::to_string(least_bytes) + " bytes (got " +
                                                  std::to_string(options.host_bytes) + ")"};
  }
  const double both = static_cast<double>(page_bytes) + share * static_cast<double>(windowed_bytes);
  const auto pages = std::max<std::int64_t>(
      static_cast<std::int64_t>(static_cast<double>(options.host_bytes) / both), 1);
  if (windowed_or_null != nullptr) {
    return open_both(options, device, *windowed_or_null, {pages, share}, threads);
  }
  STEMMA_ASSIGN_OR_RETURN(host_, make_host_pool(options, device, pages, 1, threads));
  return {};
}

// Where there is too little memory for all that is wanted, half of both is tried, and so on.
Status TierStack::open_both(const Options& options, KvPool& device, KvPool& windowed,
                            const HostShares& wanted, ThreadPool& threads) {
  std::string why;
  for (std::int64_t pages = wanted.pages;; pages /= 2) {
    const double windowed_pages = wanted.windowed_share * static_cast<double>(pages);
    const Status had = try_open_both(
        options, device, windowed, pages,
        std::max<std::int64_t>(static_cast<std::int64_t>(windowed_pages), 1), threads);
    if (had.ok() && pages < wanted.pages) {
      STEMMA_LOG(kWarning, "tier.host_smaller", kv("wanted_pages", wanted.pages),
                 kv("pages", pages), kv("windowed_pages", windowed_host_->pages()),
                 kv("error", why));
    }
    if (had.ok() || had.error().code != ErrorCode::kOutOfMemory || pages == 1) return had;
    if (why.empty()) why = to_string(had.error());
  }
}

// Asks first whether there is room for both: what one has touched by then, and gives back, would be
// time lost at a start.
Status TierStack::try_open_both(const Options& options, KvPool& device, KvPool& windowed,
                                std::int64_t pages, std::int64_t windowed_pages,
                                ThreadPool& threads) {
  host_.reset();
  STEMMA_RETURN_IF_ERROR(check_memory_room(pages * stored_bytes(device, options.codec) +
                                           windowed_pages * stored_bytes(windowed, options.codec)));
  STEMMA_ASSIGN_OR_RETURN(host_, make_host_pool(options, device, pages, pages, threads));
  STEMMA_ASSIGN_OR_RETURN(
      windowed_host_, make_host_pool(options, windowed, windowed_pages, windowed_pages, threads));
  return {};
}

std::unique_ptr<TransferLanes> TierStack::open_lanes(std::int64_t jobs_max) {
  return std::make_unique<ThreadLanes>(*work_, stores_.size(), jobs_max);
}

void TierStack::describe(const NamespaceDigest& digest, std::string_view description) {
  LowerTiers::describe(digest, description);
  if (std::exchange(named_, true)) return;
  if (image_.has_value()) image_->label.model = digest;
  if (windowed_image_.has_value()) windowed_image_->label.model = digest;
}

}  // namespace stemma
