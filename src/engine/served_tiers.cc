#include "engine/served_tiers.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/named_flag.h"
#include "pool/kv_pool_factory.h"
#include "store/disk_page_store.h"
#include "store/redis_page_store.h"
#include "tier/guarded_store.h"
#include "tier/tier_stack.h"

namespace stemma {
namespace {

// What servers that do not answer may add to a start.
constexpr std::int64_t kGreetUsMax = 500'000;

using Stores = std::vector<std::unique_ptr<PageStore>>;

// What the rank's frames are kept under; empty where there is one rank.
std::string rank_name(const ServedTierOptions& options) {
  if (options.ranks == 1) return {};
  return "rank" + std::to_string(options.rank) + "of" + std::to_string(options.ranks);
}

Result<std::string> disk_directory(const ServedTierOptions& options) {
  if (options.ranks == 1) return options.disk_directory;
  std::error_code error;
  std::filesystem::create_directory(options.disk_directory, error);
  if (!error) return options.disk_directory + "/" + rank_name(options);
  return Error{ErrorCode::kIo, options.disk_directory, error.value()};
}

std::string host_file(const ServedTierOptions& options) {
  if (options.ranks == 1 || options.host_file.empty()) return options.host_file;
  return options.host_file + "." + rank_name(options);
}

// nullptr: there is none. The first rank remembers for all.
Result<std::unique_ptr<PurgeFile>> open_purge_file(const ServedTierOptions& options) {
  const bool is_own = options.purge_file.empty();
  const bool is_wanted = !is_own || !options.disk_directory.empty();
  if (options.rank != 0 || !is_wanted) return std::unique_ptr<PurgeFile>();
  auto file =
      PurgeFile::open(is_own ? options.disk_directory + "/purges" : options.purge_file, is_own);
  if (!file.ok()) return named("--purge-file", file.error());
  return file;
}

Result<Stores> open_stores(const ServedTierOptions& options, const Clock& clock) {
  Stores stores;
  if (!options.disk_directory.empty()) {
    if (options.disk_bytes < kDiskBytesMin) {
      return Error{ErrorCode::kInvalidArgument, "--disk-bytes must be at least " +
                                                    std::to_string(kDiskBytesMin) + " (got " +
                                                    std::to_string(options.disk_bytes) + ")"};
    }
    const auto directory = disk_directory(options);
    if (!directory.ok()) return named("--disk", directory.error());
    auto disk = DiskPageStore::open(*directory, clock, {.bytes_max = options.disk_bytes});
    if (!disk.ok()) return named("--disk", disk.error());
    stores.push_back(std::make_unique<GuardedStore>(std::move(disk).value(), clock));
  }
  if (!options.remote_url.empty()) {
    RedisPageStoreOptions remote;
    remote.url = options.remote_url;
    remote.secret = options.remote_secret;
    remote.part = rank_name(options);
    auto store = RedisPageStore::open(remote, clock);
    if (!store.ok()) return named("--remote", store.error());
    (*store)->greet(clock.now_us() + kGreetUsMax);
    stores.push_back(std::move(store).value());
  }
  return stores;
}

// `page_bytes`: of both pools.
Result<TierStack::Options> stack_options(const ServedTierOptions& options,
                                         std::int64_t page_bytes) {
  const auto layout = parse_kv_layout(options.host_layout);
  if (!layout.ok()) return named("--host-layout", layout.error());
  const auto codec = try_parse_page_codec(options.codec);
  if (!codec.has_value()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--tier-codec must be plain, int8 or int4 (got " + options.codec + ")"};
  }
  TierStack::Options stack;
  stack.host_bytes =
      options.host_bytes > 0 ? options.host_bytes : std::max(kPassThroughBytes, 8 * page_bytes);
  stack.host_layout = *layout;
  stack.codec = *codec;
  stack.host_file = host_file(options);
  return stack;
}

}  // namespace

Result<std::unique_ptr<LowerTiers>> open_served_tiers(const ServedTierOptions& options,
                                                      KvPool& device, KvPool* windowed_or_null,
                                                      ThreadPool& threads, const Clock& clock) {
  if (!options.host_file.empty() && options.host_bytes == 0) {
    return Error{ErrorCode::kInvalidArgument, "--host-file needs --host-bytes"};
  }
  const bool windowed = windowed_or_null != nullptr;
  std::int64_t page_bytes = device.shape().page_bytes();
  if (windowed) page_bytes += windowed_or_null->shape().page_bytes();
  STEMMA_ASSIGN_OR_RETURN(Stores stores, open_stores(options, clock));
  STEMMA_ASSIGN_OR_RETURN(const TierStack::Options stack, stack_options(options, page_bytes));
  const Status replaceable = TierStack::check_host_files(stack, windowed);
  if (!replaceable.ok()) return named("--host-file", replaceable.error());
  if (options.host_bytes == 0 && stores.empty()) {
    if (options.purge_file.empty()) return std::unique_ptr<LowerTiers>();
    return Error{ErrorCode::kInvalidArgument,
                 "--purge-file needs --disk, --remote or --host-bytes"};
  }
  // Before memory is touched, of which there may be much.
  STEMMA_ASSIGN_OR_RETURN(auto purges, open_purge_file(options));
  auto tiers = TierStack::open(stack, device, std::move(stores), threads, clock, windowed_or_null);
  if (!tiers.ok()) return named("--host-bytes", tiers.error());
  (*tiers)->set_purge_file(std::move(purges));
  return std::unique_ptr<LowerTiers>(std::move(tiers).value());
}

}  // namespace stemma
