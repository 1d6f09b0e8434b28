// The header, numbers little-endian, zeros up to 4096 bytes:
//
//     0  magic "STEMHOST"     16  frame bytes   u64
//     8  version       u32    24  model         32 bytes
//    12  checksum      u32    of everything behind it
#include "tier/host_image_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/file_place.h"

namespace stemma {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
constexpr std::int64_t kAheadBytes = std::int64_t{16} << 20;
// Room is asked for in such steps, so that a write does not also have to make some.
constexpr std::int64_t kRoomBytes = std::int64_t{256} << 20;
constexpr std::size_t kHeaderBytes = kFrameAlignment;
using Magic = std::array<char, 8>;
constexpr Magic kMagic = {'S', 'T', 'E', 'M', 'H', 'O', 'S', 'T'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  Magic magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t checksum = 0;
  std::uint64_t frame_bytes = 0;
  NamespaceDigest model;
};
static_assert(sizeof(Header) == 56);
constexpr std::size_t kCheckedAt = 16;

// Frames that are read or written at once.
std::size_t piece_frames(std::size_t frame_bytes) {
  return std::max<std::size_t>(kPieceBytes / frame_bytes, 1);
}

// Past the page cache where the file system can: nothing of it is read again before the end of the
// process.
int open_to_write(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  const int descriptor = ::open(path.c_str(), kFlags | O_DIRECT, 0600);
  if (descriptor >= 0 || errno != EINVAL) return descriptor;
  return ::open(path.c_str(), kFlags, 0600);
}

std::string unfinished_path(const std::string& path) {
  return path + ".new";
}

Error refused(const std::string& path, const char* why) {
  return Error{ErrorCode::kInvalidArgument, path + ": " + why};
}

// How a file begins, filled up with zeros; nothing where there is none, or an empty one. An error
// where it is no regular file, which is not opened.
Result<std::optional<Magic>> begin_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::optional<Magic>();
    return file_failure(path, "stat");
  }
  if (!S_ISREG(status.st_mode)) return refused(path, "not a regular file");
  PosixFiles files;
  STEMMA_ASSIGN_OR_RETURN(const auto file, files.open(path));
  if (file->size_bytes() == 0) return std::optional<Magic>();
  Magic begin = {};
  const auto size = static_cast<std::size_t>(file->size_bytes());
  const auto bytes = std::as_writable_bytes(std::span(begin));
  STEMMA_RETURN_IF_ERROR(file->read_exact(0, bytes.first(std::min(size, bytes.size()))));
  return std::optional(begin);
}

// Of any model and version.
Status check_replaceable(const std::string& path) {
  STEMMA_ASSIGN_OR_RETURN(const auto begin, begin_of(path));
  if (!begin.has_value() || *begin == kMagic) return {};
  return refused(path, "not a file of host memory, and is not written over");
}

// One that a loss of power left may have room and no bytes yet.
Status check_unfinished(const std::string& path) {
  STEMMA_ASSIGN_OR_RETURN(const auto begin, begin_of(path));
  const bool blank = begin.has_value() && *begin == Magic{};
  return blank ? Status() : check_replaceable(path);
}

// A name that stays where its directory may not be written, or where the file itself is mounted
// there, names no page any more. False unless that is durable.
bool try_empty(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool emptied = ::ftruncate(descriptor, 0) == 0 && ::fsync(descriptor) == 0;
  ::close(descriptor);
  return emptied;
}

// What a process that was killed had written of the file at `path`. What a live one writes is its
// own.
Status remove_unfinished(const std::string& path) {
  const std::string name = unfinished_path(path);
  const int descriptor = ::open(name.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) {
    const bool none = errno == ENOENT || errno == ENOTDIR || errno == EISDIR || errno == ELOOP;
    return none ? Status() : Status(file_failure(name, "open"));
  }
  Status removed;
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    // It may have been finished meanwhile, and have another name.
    const Result<bool> is_its = is_named(descriptor, name);
    const bool left = is_its.ok() && *is_its && ::unlink(name.c_str()) != 0;
    if (!is_its.ok()) removed = is_its.error();
    if (left) removed = file_failure(name, "remove");
    if (left && try_empty(name)) removed = Status();
  } else if (errno != EWOULDBLOCK) {
    removed = file_failure(name, "lock");
  }
  ::close(descriptor);
  return removed;
}

}  // namespace

Result<std::unique_ptr<HostImageReader>> HostImageReader::open(Files& files,
                                                               const std::string& path,
                                                               const HostImageLabel& label) {
  STEMMA_ASSIGN_OR_RETURN(auto file, files.open(path));
  if (file->size_bytes() == 0) return Error{ErrorCode::kNotFound, path + ": is empty"};
  std::unique_ptr<HostImageReader> reader(new HostImageReader(std::move(file), label));
  const std::size_t frame_bytes = reader->frame_bytes_;
  STEMMA_ASSIGN_OR_RETURN(reader->piece_,
                          Buffer::allocate(piece_frames(frame_bytes) * frame_bytes));
  STEMMA_RETURN_IF_ERROR(reader->read_header());
  return reader;
}

Status HostImageReader::read_header() {
  const auto wrong = [this](ErrorCode code, const char* what) {
    return Error{code, file_->path() + ": " + what};
  };
  std::array<std::byte, kHeaderBytes> bytes;
  STEMMA_RETURN_IF_ERROR(file_->read_exact(0, bytes));
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return wrong(ErrorCode::kCorrupt, "not a file of host memory");
  if (header.version > kVersion) return wrong(ErrorCode::kUnsupported, "of a later version");
  if (header.version != kVersion ||
      header.checksum != crc32c(std::span(bytes).subspan(kCheckedAt))) {
    return wrong(ErrorCode::kCorrupt, "its header is damaged");
  }
  if (header.model != label_.model || header.frame_bytes != frame_bytes_) {
    return wrong(ErrorCode::kUnsupported, "pages of another model or format");
  }
  const std::size_t left = static_cast<std::size_t>(file_->size_bytes()) - kHeaderBytes;
  frames_ = static_cast<std::int64_t>(left / frame_bytes_);
  bad_frames_ = left % frame_bytes_ == 0 ? 0 : 1;
  return {};
}

std::optional<PageFrameView> HostImageReader::try_next() {
  while (next_ < frames_) {
    const auto in_memory = [this] { return piece_first_ <= next_ && next_ < piece_end_; };
    if (!in_memory()) read_piece();
    if (!in_memory()) continue;  // nothing of it could be read
    if (const auto view = checked(next_++)) return view;
    ++bad_frames_;
  }
  return std::nullopt;
}

std::optional<PageFrameView> HostImageReader::try_read(std::int64_t frame) {
  STEMMA_CHECK(0 <= frame && frame < next_, "a frame that was given");
  const bool in_memory = piece_first_ <= frame && frame < piece_end_;
  if (!in_memory && !read_frames(frame, 1)) return std::nullopt;
  return checked(frame);
}

// Of the piece in memory.
std::optional<PageFrameView> HostImageReader::checked(std::int64_t frame) const {
  const auto bytes = piece_.as<const std::byte>().subspan(
      static_cast<std::size_t>(frame - piece_first_) * frame_bytes_, frame_bytes_);
  const auto view = read_frame(bytes);
  if (!view.ok() || !check_frame(bytes, label_.format, view->identity).ok()) return std::nullopt;
  return *view;
}

// Where a piece cannot be read as a whole, its frames are read one by one.
void HostImageReader::read_piece() {
  const auto frames = static_cast<std::int64_t>(piece_frames(frame_bytes_));
  if (read_frames(next_, std::min(frames, frames_ - next_)) || read_frames(next_, 1)) return;
  ++bad_frames_;
  ++next_;
}

bool HostImageReader::read_frames(std::int64_t first, std::int64_t frames) {
  const std::int64_t offset =
      static_cast<std::int64_t>(kHeaderBytes) + first * static_cast<std::int64_t>(frame_bytes_);
  const auto target = piece_.as<std::byte>().first(static_cast<std::size_t>(frames) * frame_bytes_);
  piece_end_ = piece_first_;  // what a read that fails leaves is no frame
  if (!file_->read_exact(offset, target).ok()) return false;
  piece_first_ = first;
  piece_end_ = first + frames;
  // The disk works while this piece is looked at.
  file_->will_read(offset + std::ssize(target), kAheadBytes);
  return true;
}

Status check_host_image_path(const std::string& path) {
  const std::string directory = directory_of(path);
  if (::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    return Error{ErrorCode::kInvalidArgument, directory + ": cannot be written", errno};
  }
  STEMMA_RETURN_IF_ERROR(check_replaceable(path));
  return check_unfinished(unfinished_path(path));
}

// Where the name has gone already, that may not be durable yet: an earlier call may have failed
// between the two.
Status remove_host_image(const std::string& path) {
  STEMMA_RETURN_IF_ERROR(remove_unfinished(path));
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) {
    const Status synced = sync_directory_of(path);
    return synced.ok() || synced.error().sys_errno != ENOENT ? synced : Status();
  }
  if (errno == ENOTDIR || errno == EISDIR) return {};  // nor can any file have this name
  const Error failed = file_failure(path, "remove");
  return try_empty(path) ? Status() : Status(failed);
}

Status remove_host_images(const HostImages& images) {
  Status removed;
  for (const LayerGroup group : {LayerGroup::kFull, LayerGroup::kWindowed}) {
    if (images.of_or_null(group) == nullptr) continue;
    const Status gone = remove_host_image(images.of_or_null(group)->path);
    if (removed.ok()) removed = gone;
  }
  return removed;
}

Result<std::unique_ptr<HostImageWriter>> HostImageWriter::open(const std::string& path,
                                                               const HostImageLabel& label) {
  STEMMA_RETURN_IF_ERROR(check_replaceable(path));
  const std::size_t bytes = frame_bytes(label.format);
  std::unique_ptr<HostImageWriter> writer(new HostImageWriter(path, label.format));
  STEMMA_ASSIGN_OR_RETURN(writer->staged_, Buffer::allocate(piece_frames(bytes) * bytes));
  STEMMA_RETURN_IF_ERROR(writer->create());
  STEMMA_RETURN_IF_ERROR(writer->put_header(label));
  return writer;
}

// Who waits for nobody finds either a file of its own, or one that somebody writes, or one that has
// meanwhile been given its name, which is not to be touched.
Status HostImageWriter::create() {
  STEMMA_ASSIGN_OR_RETURN(descriptor_, open_locked(
                                           new_path(), [this] { return open_to_write(new_path()); },
                                           "another process writes it"));
  if (::fchmod(descriptor_, 0600) != 0) return file_failure(new_path(), "protect");
  if (::ftruncate(descriptor_, 0) != 0) return file_failure(new_path(), "empty");
  return {};
}

Status HostImageWriter::put_header(const HostImageLabel& label) {
  Header header;
  header.frame_bytes = frame_bytes_;
  header.model = label.model;
  const auto bytes = staged_.as<std::byte>().first(kHeaderBytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.checksum = crc32c(bytes.subspan(kCheckedAt));
  std::memcpy(bytes.data(), &header, sizeof(header));
  return write_out(bytes);
}

HostImageWriter::~HostImageWriter() {
  if (descriptor_ < 0) return;
  ::unlink(new_path().c_str());
  ::close(descriptor_);
}

std::string HostImageWriter::new_path() const {
  return unfinished_path(path_);
}

std::span<std::byte> HostImageWriter::next_frame() {
  return staged_.as<std::byte>().subspan(staged_bytes_, frame_bytes_);
}

Status HostImageWriter::keep() {
  staged_bytes_ += frame_bytes_;
  return staged_bytes_ + frame_bytes_ > staged_.size_bytes() ? write_staged() : Status();
}

Result<bool> HostImageWriter::write_page(HostPool& pages, PageId from, const PageKey& key,
                                         const PageIdentity& page) {
  const std::span<std::byte> frame = next_frame();
  const auto body = frame.subspan(frame_body_offset(format_),
                                  static_cast<std::size_t>(format_.layers * format_.layer_bytes));
  if (pages.read_image(from, key, body, sums_) != MoveVerdict::kDone) return false;
  encode_frame(format_, page, sums_, pages_, frame);
  STEMMA_RETURN_IF_ERROR(keep());
  ++pages_;
  return true;
}

Status HostImageWriter::write_staged() {
  return write_out(staged_.as<std::byte>().first(std::exchange(staged_bytes_, 0)));
}

Status HostImageWriter::write_out(std::span<const std::byte> bytes) {
  if (written_bytes_ + std::ssize(bytes) > room_bytes_) {
    // Where there is no such call, or not so much room, the writes themselves will tell.
    static_cast<void>(::fallocate(descriptor_, 0, room_bytes_, kRoomBytes));
    room_bytes_ += kRoomBytes;
  }
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), written_bytes_);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_failure(new_path(), "write");
    written_bytes_ += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status HostImageWriter::finish() {
  STEMMA_RETURN_IF_ERROR(write_staged());
  if (::ftruncate(descriptor_, written_bytes_) != 0) return file_failure(new_path(), "cut");
  if (::fdatasync(descriptor_) != 0) return file_failure(new_path(), "sync");
  if (::rename(new_path().c_str(), path_.c_str()) != 0) return file_failure(path_, "rename to");
  ::close(std::exchange(descriptor_, -1));
  return sync_directory_of(path_);
}

}  // namespace stemma
