#include "cache/host_file.h"

#include <algorithm>

#include "cache/host_image_pages.h"
#include "stemma/log.h"

namespace stemma {
namespace {

// Of the pause before a file that could not be removed is tried again.
constexpr int kDoublingsMax = 10;

}  // namespace

void HostFile::load() {
  if (parts_.images.full_or_null == nullptr) return;
  const HostImageCounts counts = load_host_image(parts_.host, parts_.images, parts_.ranks_or_null);
  parts_.counters.host_file_loaded = counts.loaded;
  parts_.counters.host_file_left_out = counts.left_out;
}

// What cannot be written is computed again in the next life.
void HostFile::save(std::span<const PrefixLock> held) {
  if (parts_.images.full_or_null == nullptr) return;
  const auto saved = save_host_image(parts_.host, parts_.images, parts_.ranks_or_null, held);
  parts_.counters.host_file_saved = saved.ok() ? *saved : 0;
  if (saved.ok()) {
    stays_ = false;
    STEMMA_LOG(kInfo, "tier.host_file.saved", kv("path", parts_.images.full_or_null->path),
               kv("pages", *saved));
  } else {
    STEMMA_LOG(kWarning, "tier.host_file.not_saved", kv("error", to_string(saved.error())));
  }
}

void HostFile::forget() {
  if (parts_.images.full_or_null == nullptr) return;
  failures_ = 0;
  remove();
}

void HostFile::advance() {
  if (stays_ && parts_.clock.now_us() >= again_us_) remove();
}

// Every rank's, whatever becomes of another's.
void HostFile::remove() {
  Status gone = remove_host_images(parts_.images);
  const Status others = parts_.ranks_or_null == nullptr ? Status() : parts_.ranks_or_null->remove();
  if (gone.ok()) gone = others;
  stays_ = !gone.ok();
  if (gone.ok()) return;
  STEMMA_LOG(kWarning, "tier.host_file.not_removed", kv("error", to_string(gone.error())));
  again_us_ = parts_.clock.now_us() + (parts_.options.store_deadline_us << failures_);
  failures_ = std::min(failures_ + 1, kDoublingsMax);
}

}  // namespace stemma
