// HostPool: pages that left the device, as page images in host memory. The tier that is nearest.
//
//   page-first   [pages, layers, layer_bytes]   a page lies together: best for going on to a store
//   layer-first  [layers, pages, layer_bytes]   a layer's pages lie together
//
// Whatever its layout and the device pool's, the copies transpose; where it has a codec they also
// encode and decode, and layer_bytes here are fewer. A page holds nothing until it is
// sealed with the key of what was copied to it, and answers for that key alone: an id that became
// stale finds a page that says so. The sums of the layers, taken on the way in, are compared on the
// way out, so a bit that flipped here is found before anybody uses it.
//
// Thread:     calls that name different pages may run at once; of one page, one call at a time
//             (whoever owns it: I6).                     Invariants: I5, I8 (docs/INVARIANTS.md).
// Memory:     images (huge pages, touched in create), and 36 + 4 × layers bytes a page beside them;
//             no allocation afterwards, but for a layer's room a call where there is a codec.
// Cost:       backup and promote: a copy of the same bytes; sums included.
// Not here:   which pages are free (alloc/page_allocator), when pages move (cache/tiering), on
// which
//             thread (tier/transfer_engine), copies to and from other devices (page_mover).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "device/buffer.h"
#include "pool/page_codec.h"
#include "pool/page_image.h"
#include "stemma/ids.h"
#include "stemma/kv_pool.h"
#include "stemma/result.h"

namespace stemma {

struct HostPoolOptions {
  std::int64_t pages = 0;
  std::int64_t pages_min = 1;    // fewer are not worth having
  std::int64_t layers = 0;       // of the device pool
  std::int64_t layer_bytes = 0;  // of the device pool: KvPool::layer_bytes
  KvLayout layout = KvLayout::kPageFirst;
  PageCodec codec = PageCodec::kPlain;
  KvShape device_shape = {};  // for codecs other than kPlain
  // Where memory comes from.
  std::function<Result<Buffer>(std::size_t size_bytes)> allocate = Buffer::allocate;
};

// What became of one page of a call.
enum class MoveVerdict : std::uint8_t {
  kUntried,    // not asked for yet
  kDone,       // all layers asked for are there, and right
  kStale,      // the host page does not hold this key; nothing was copied
  kCorrupt,    // a layer's sum is wrong: what was copied must not be used
  kCancelled,  // the call was told to stop before this page was complete, or it cannot be encoded
};

// A page to be copied. `from` and `to` are pages of the two pools of the call.
struct PageMove {
  PageId from;
  PageId to;
  PageKey key;  // of its content
  MoveVerdict verdict = MoveVerdict::kUntried;
};

class HostPool {
 public:
  // Asked between pieces of about a MiB (or one layer of a page, if that is more): false stops the
  // call.
  using GoOn = FunctionRef<bool()>;

  // A pool of options.pages, all empty. If there is no memory for that, of half as many, and so on
  // down to pages_min, which is logged once. kOutOfMemory if there is none for pages_min either;
  // kInvalidArgument names a field. `threads` only helps to touch the memory and is not kept.
  static Result<std::unique_ptr<HostPool>> create(const HostPoolOptions& options,
                                                  ThreadPool& threads);

  std::int64_t pages() const noexcept { return options_.pages; }  // that there was memory for
  std::int64_t layers() const noexcept { return options_.layers; }
  std::int64_t layer_bytes() const noexcept { return image_layer_bytes_; }  // as kept here
  std::int64_t page_bytes() const noexcept { return layers() * layer_bytes(); }
  KvLayout layout() const noexcept { return options_.layout; }
  PageCodec codec() const noexcept { return options_.codec; }

  // Copies pages of `device` here and seals each with its key: kDone, or kCancelled (then the host
  // page holds nothing). Page by page, in the order of the moves. REQUIRES: `device` is in host
  // memory and has this pool's layers; verdicts are kUntried; targets differ.
  void backup(const KvPool& device, std::span<PageMove> moves, GoOn go_on);

  // Copies the layers of host pages to `device` and compares their sums. Layer by layer, so that a
  // caller who asks for one range of layers after another may let each be used when it has come.
  // Goes on with moves that are kUntried or kDone (of earlier layers) and leaves the others alone.
  // A page that is kCorrupt or kCancelled afterwards has bytes in `device` that must be dropped.
  // REQUIRES: as backup.
  void promote(KvPool& device, std::span<PageMove> moves, LayerRange layers, GoOn go_on) const;

  // Copies an image, [layers, layer_bytes], with the sums of its layers, here and seals it: kDone,
  // or kCorrupt if a sum is wrong (then the page holds nothing).
  MoveVerdict write_image(PageId page, const PageKey& key, std::span<const std::byte> image,
                          std::span<const std::uint32_t> sums);
  // The inverse: kDone, kStale or kCorrupt. Sums are the layers' as they were when they came here.
  MoveVerdict read_image(PageId page, const PageKey& key, std::span<std::byte> image,
                         std::span<std::uint32_t> sums) const;

  // Whether `page` is sealed with `key`.
  bool holds(PageId page, const PageKey& key) const;
  // Afterwards the page holds nothing.
  void forget(PageId page);

  // For movers, which copy bytes by themselves.

  // The bytes of a layer of a page as they lie here, whoever owns it.
  std::span<std::byte> layer_image(PageId page, std::int64_t layer);
  // All images, page-aligned and mapped in whole pages.
  std::span<std::byte> memory() { return {memory_.images.bytes(), memory_.images.size_bytes()}; }
  // The sums of the layers of a page. They mean something as long as it holds something.
  std::span<const std::uint32_t> layer_sums(PageId page) const {
    check_page(page);
    return sums_of(page);
  }
  // The page holds what has that key and these sums. REQUIRES: its images were written.
  void seal(PageId page, const PageKey& key, std::span<const std::uint32_t> sums);

 private:
  // Whose bytes a page holds.
  struct Seal {
    PageKey key;
    bool sealed = false;
  };
  struct Memory {
    Buffer images;
    Buffer sums;   // [pages, layers]
    Buffer seals;  // [pages]
  };

  class Gate;

  static Result<Memory> allocate(const HostPoolOptions& options);
  HostPool(const HostPoolOptions& options, Memory memory);

  void check_device(const KvPool& device) const;
  void check_page(PageId page) const;
  bool backup_page(const KvPool& device, const PageMove& move, PageId next_page, Gate& gate);
  bool promote_layer(KvPool& device, std::span<PageMove> moves, std::int64_t layer,
                     const std::byte* next_layer, Gate& gate) const;
  const std::byte* layer_begin(PageId page, std::int64_t layer) const;
  std::byte* layer_begin(PageId page, std::int64_t layer);
  std::span<std::uint32_t> sums_of(PageId page);
  std::span<const std::uint32_t> sums_of(PageId page) const;

  HostPoolOptions options_;
  std::int64_t image_layer_bytes_;
  Memory memory_;
};

}  // namespace stemma
