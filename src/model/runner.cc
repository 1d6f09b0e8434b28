#include "stemma/runner.h"

#include "pool/page_image.h"

namespace stemma {

Status Runner::copy_pages(KvPools pools, const PageCopies& copies) {
  if (copies.from.valid()) copy_page(pools.full, copies.from, copies.to);
  if (copies.windowed_from.valid()) {
    copy_page(*pools.windowed, copies.windowed_from, copies.windowed_to);
  }
  return {};
}

}  // namespace stemma
