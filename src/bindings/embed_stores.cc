// The stores of the component `tiers`: a source of its own, so that who does without them links
// neither io_uring nor sockets.
#include <utility>

#include "base/clock.h"
#include "base/or_no_thread.h"
#include "stemma/embed.h"
#include "store/disk_page_store.h"
#include "store/redis_page_store.h"
#include "tier/guarded_store.h"

namespace stemma {

namespace {

const Clock& clock() {
  static const MonotonicClock the_clock;
  return the_clock;
}

}  // namespace

Result<std::unique_ptr<PageStore>> open_disk_store(const std::string& directory,
                                                   std::int64_t bytes_max) {
  const auto open = [&] {
    return DiskPageStore::open(directory, clock(), {.bytes_max = bytes_max});
  };
  STEMMA_ASSIGN_OR_RETURN(auto disk, or_no_thread(open));
  return std::unique_ptr<PageStore>(std::make_unique<GuardedStore>(std::move(disk), clock()));
}

Result<std::unique_ptr<PageStore>> open_remote_store(const std::string& url,
                                                     const std::string& secret) {
  RedisPageStoreOptions options;
  options.url = url;
  options.secret = secret;
  STEMMA_ASSIGN_OR_RETURN(auto store, RedisPageStore::open(options, clock()));
  return std::unique_ptr<PageStore>(std::move(store));
}

}  // namespace stemma
