// The stores of the component `tiers` in the C ABI (bindings/embed_stores.cc).
#include <utility>

#include "bindings/c_handles.h"
#include "stemma/embed.h"

namespace stemma {

namespace {

stemma_status open_store(Result<std::unique_ptr<PageStore>> opened, stemma_store** store) {
  if (!opened.ok()) return fail(opened.error());
  *store = std::make_unique<stemma_store>(stemma_store{std::move(opened).value()}).release();
  return STEMMA_OK;
}

}  // namespace

}  // namespace stemma

stemma_status stemma_disk_store_open(const char* directory, int64_t bytes_max,
                                     stemma_store** store) {
  return stemma::guarded([&] {
    if (directory == nullptr || store == nullptr) return stemma::refuse("directory, store: NULL");
    return stemma::open_store(stemma::open_disk_store(directory, bytes_max), store);
  });
}

stemma_status stemma_remote_store_open(const char* url, const char* secret, stemma_store** store) {
  return stemma::guarded([&] {
    if (url == nullptr || store == nullptr) return stemma::refuse("url, store: NULL");
    return stemma::open_store(stemma::open_remote_store(url, secret == nullptr ? "" : secret),
                              store);
  });
}
