// HostImageFile: pages of host memory in one file, from the clean end of one life to the next.
//
//   header   4096 bytes: magic, version, checksum, frame bytes, whose pages these are
//   frames   one behind the other (page_frame), each page behind the one that it continues
//
// A new file is written beside the old one and takes its name when it is durable. What was cut off
// or damaged nevertheless costs the frames it hit: each is checked by itself.
//
// Thread:     one at a time.                                   Invariants: I8 (docs/INVARIANTS.md).
// Memory:     a few frames, 8 MiB of them.
// Cost:       the file is read, or written, once, in its order.
// Not here:   which pages, and where they go (cache/host_image_pages).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "device/buffer.h"
#include "pool/host_pool.h"
#include "stemma/prefix_cache.h"
#include "stemma/result.h"
#include "tier/page_frame.h"
#include "tier/transfer.h"

namespace stemma {

// What pages a file holds: of this format, and those of one model.
struct HostImageLabel {
  PageFormat format;
  NamespaceDigest model;
};

// Host memory, and the file that it survives in.
struct HostImage {
  HostPool& pages;
  std::string path;
  HostImageLabel label;
};

// Those of all layers.
struct HostImages {
  const HostImage* full_or_null = nullptr;      // nullptr: host memory survives in no file
  const HostImage* windowed_or_null = nullptr;  // nullptr: no layers have a window

  const HostImage* of_or_null(LayerGroup group) const {
    return group == LayerGroup::kFull ? full_or_null : windowed_or_null;
  }
};

// Whether a file of host memory may be written at `path`: nothing lies there, an empty file, or one
// of host memory, of whatever model, format or version; and its directory can be written. Else
// kInvalidArgument or kIo. Looks, and changes nothing.
Status check_host_image_path(const std::string& path);

class HostImageReader {
 public:
  // kNotFound, also where the file is empty; kIo; kUnsupported: another model's or format's pages,
  // or a later version; kCorrupt. `files` must outlive it.
  static Result<std::unique_ptr<HostImageReader>> open(Files& files, const std::string& path,
                                                       const HostImageLabel& label);

  // The next frame whose header is whole and says a page of this format; until the next call.
  // Nothing at the end. The body has not been looked at.
  std::optional<PageFrameView> try_next();
  // The number of the frame that try_next gave last.
  std::int64_t given_frame() const noexcept { return next_ - 1; }
  // One that try_next gave before, as it would; it goes on from where it was.
  std::optional<PageFrameView> try_read(std::int64_t frame);
  // Frames that try_next passed over, one that is cut off included.
  std::int64_t bad_frames() const noexcept { return bad_frames_; }

 private:
  HostImageReader(std::unique_ptr<ReadableFile> file, const HostImageLabel& label)
      : file_(std::move(file)), label_(label), frame_bytes_(frame_bytes(label.format)) {}
  Status read_header();
  void read_piece();
  bool read_frames(std::int64_t first, std::int64_t frames);
  std::optional<PageFrameView> checked(std::int64_t frame) const;

  std::unique_ptr<ReadableFile> file_;
  HostImageLabel label_;
  std::size_t frame_bytes_;
  std::int64_t frames_ = 0;       // whole ones in the file
  std::int64_t next_ = 0;         // to be given
  std::int64_t piece_first_ = 0;  // frames in memory
  std::int64_t piece_end_ = 0;
  std::int64_t bad_frames_ = 0;
  Buffer piece_;
};

// That it is gone, or else empty, is durable; what a process that was killed had written of it goes
// too. ok where there is none.
Status remove_host_image(const std::string& path);
// The same of all of them; an error of any is one.
Status remove_host_images(const HostImages& images);

class HostImageWriter {
 public:
  // kIo; kInvalidArgument: another process writes it, or what lies at `path` is not to be written
  // over (check_host_image_path).
  static Result<std::unique_ptr<HostImageWriter>> open(const std::string& path,
                                                       const HostImageLabel& label);
  // Leaves the old file alone unless finish said that all is well.
  ~HostImageWriter();
  HostImageWriter(const HostImageWriter&) = delete;
  HostImageWriter& operator=(const HostImageWriter&) = delete;

  // Where the next frame is to be made; keep takes what lies there then.
  std::span<std::byte> next_frame();
  Status keep();
  // Both, of a page that host memory has under `key`: false if it is wrong there, and is not kept.
  Result<bool> write_page(HostPool& pages, PageId from, const PageKey& key,
                          const PageIdentity& page);
  // Makes the file durable, then gives it its name.
  Status finish();

 private:
  HostImageWriter(std::string path, const PageFormat& format)
      : path_(std::move(path)),
        format_(format),
        frame_bytes_(frame_bytes(format)),
        sums_(static_cast<std::size_t>(format.layers)) {}
  std::string new_path() const;
  Status create();
  Status put_header(const HostImageLabel& label);
  Status write_staged();
  Status write_out(std::span<const std::byte> bytes);

  std::string path_;
  PageFormat format_;
  std::size_t frame_bytes_;
  std::vector<std::uint32_t> sums_;  // of a page
  std::uint64_t pages_ = 0;          // that write_page kept
  int descriptor_ = -1;
  Buffer staged_;
  std::size_t staged_bytes_ = 0;
  std::int64_t written_bytes_ = 0;
  std::int64_t room_bytes_ = 0;  // that was asked for
};

}  // namespace stemma
