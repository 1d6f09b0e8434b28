// Numbers are little-endian:
//
//     0  magic "STEMPURG"     16  bytes of the body  u64
//     8  version       u32    24  body
//    12  checksum      u32    of everything else
//
// The body is two copies, each with such a header before it; in version 1 it is what each of them
// has: the file of host memory stays u8; a list of purges, of removals and of wrong shared pages,
// each with its length u64 before it:
//
//     purge     store, pages before u64, list of families (8 bytes each)
//     removal   store, group u8, list of keys (32 bytes each)
//     shared    digest (32 bytes), tokens u64
//
// A store is a list of bytes.
#include "tier/purge_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/file_place.h"

namespace stemma {

namespace {

constexpr std::string_view kMagic = "STEMPURG";
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHeaderBytes = 24;
constexpr std::size_t kChecksumAt = 12;
constexpr std::size_t kCheckedAt = 16;
// More than 64 stores can be owed of what purges and removals remember.
constexpr std::int64_t kBytesMax = std::int64_t{1} << 30;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void put_size(std::size_t size) { put(static_cast<std::uint64_t>(size)); }
  template <typename List>
  void put_all(const List& list) {
    put_size(list.size());
    for (const auto& value : list) put(value);
  }
  void put_text(std::string_view text) {
    put_size(text.size());
    out_ += text;
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Gives nothing any more once something was not there.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  template <typename T>
  T take() {
    T value = {};
    const std::string_view bytes = take_bytes(sizeof(value));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  // Of a list whose entries have at least so many bytes.
  std::size_t take_size(std::size_t entry_bytes) {
    const auto size = take<std::uint64_t>();
    if (size > left_.size() / entry_bytes) ok_ = false;
    return ok_ ? static_cast<std::size_t>(size) : 0;
  }
  template <typename T>
  std::vector<T> take_all() {
    std::vector<T> list(take_size(sizeof(T)));
    for (T& value : list) value = take<T>();
    return list;
  }
  std::string take_text() { return std::string(take_bytes(take_size(1))); }
  void refuse() { ok_ = false; }
  bool ok() const { return ok_; }
  bool is_whole() const { return ok_ && left_.empty(); }

 private:
  std::string_view take_bytes(std::size_t bytes) {
    ok_ = ok_ && bytes <= left_.size();
    if (!ok_) return {};
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }

  std::string_view left_;
  bool ok_ = true;
};

std::string body_of(const Unconfirmed& unconfirmed) {
  Writer body;
  body.put(static_cast<std::uint8_t>(unconfirmed.host_file));
  body.put_size(unconfirmed.purges.size());
  for (const UnconfirmedPurge& purge : unconfirmed.purges) {
    body.put_text(purge.store);
    body.put(purge.pages_before);
    body.put_all(purge.namespaces);
  }
  body.put_size(unconfirmed.removals.size());
  for (const UnconfirmedRemoval& removal : unconfirmed.removals) {
    body.put_text(removal.store);
    body.put(removal.group);
    body.put_all(removal.keys);
  }
  body.put_size(unconfirmed.shared.size());
  for (const WrongShared& wrong : unconfirmed.shared) {
    body.put(wrong.digest);
    body.put(wrong.tokens);
  }
  return body.take();
}

UnconfirmedPurge take_purge(Reader& body) {
  UnconfirmedPurge purge;
  purge.store = body.take_text();
  purge.pages_before = body.take<std::int64_t>();
  purge.namespaces = body.take_all<NamespaceFamily>();
  if (purge.pages_before < 0) body.refuse();
  return purge;
}

UnconfirmedRemoval take_removal(Reader& body) {
  UnconfirmedRemoval removal;
  removal.store = body.take_text();
  const auto group = body.take<std::uint8_t>();
  removal.group = static_cast<LayerGroup>(group);
  removal.keys = body.take_all<PageKey>();
  if (group > static_cast<std::uint8_t>(LayerGroup::kWindowed)) body.refuse();
  return removal;
}

WrongShared take_shared(Reader& body) {
  WrongShared wrong;
  wrong.digest = body.take<NamespaceDigest>();
  wrong.tokens = body.take<std::int64_t>();
  return wrong;
}

// The least that an entry has: sizes and numbers.
constexpr std::size_t kEntryBytes = 17;

std::optional<Unconfirmed> read_body(std::string_view bytes) {
  Reader body(bytes);
  Unconfirmed said;
  said.host_file = body.take<std::uint8_t>() != 0;
  const auto list = [&body](auto& entries, auto take) {
    for (std::size_t left = body.take_size(kEntryBytes); left > 0 && body.ok(); --left) {
      entries.push_back(take(body));
    }
  };
  list(said.purges, take_purge);
  list(said.removals, take_removal);
  list(said.shared, take_shared);
  if (!body.is_whole()) return std::nullopt;
  return said;
}

std::uint32_t checksum_of(std::string_view file) {
  const auto bytes = bytes_of(file);
  return crc32c(bytes.subspan(kCheckedAt), crc32c(bytes.first(kChecksumAt)));
}

// With its header.
std::string framed(const std::string& body) {
  Writer header;
  for (const char letter : kMagic) header.put(letter);
  header.put(kVersion);
  header.put(std::uint32_t{0});
  header.put_size(body.size());
  std::string file = header.take() + body;
  const std::uint32_t checksum = checksum_of(file);
  std::memcpy(file.data() + kChecksumAt, &checksum, sizeof(checksum));
  return file;
}

std::string file_of(const Unconfirmed& unconfirmed) {
  const std::string copy = framed(body_of(unconfirmed));
  return framed(copy + copy);
}

std::uint64_t body_bytes_of(std::string_view file) {
  return Reader(file.substr(kCheckedAt, kHeaderBytes - kCheckedAt)).take<std::uint64_t>();
}

// Of any version.
bool is_whole(std::string_view file) {
  if (file.size() < kHeaderBytes || !file.starts_with(kMagic)) return false;
  const auto checksum = Reader(file.substr(kChecksumAt)).take<std::uint32_t>();
  return checksum == checksum_of(file) && body_bytes_of(file) == file.size() - kHeaderBytes;
}

std::uint32_t version_of(std::string_view file) {
  return Reader(file.substr(kMagic.size())).take<std::uint32_t>();
}

// What either copy says, however the file ends and whatever stands before them.
std::optional<Unconfirmed> read_copies(std::string_view file) {
  if (file.size() < 2 * kHeaderBytes) return std::nullopt;
  const std::string_view copies = file.substr(kHeaderBytes);
  const std::uint64_t body_bytes = std::min<std::uint64_t>(body_bytes_of(copies), copies.size());
  const std::string_view first = copies.substr(0, kHeaderBytes + body_bytes);
  const std::string_view second = copies.substr(copies.size() - copies.size() / 2);
  for (const std::string_view copy : {first, second}) {
    if (is_whole(copy) && version_of(copy) == kVersion) return read_body(copy.substr(kHeaderBytes));
  }
  return std::nullopt;
}

}  // namespace

std::string purge_label(const PageStore& store) {
  return std::string(tier_name(store.tier())) + ":" + std::string(store.name());
}

Result<std::unique_ptr<PurgeFile>> PurgeFile::open(const std::string& path, bool is_own) {
  std::unique_ptr<PurgeFile> file(new PurgeFile(path));
  STEMMA_RETURN_IF_ERROR(file->lock());
  STEMMA_RETURN_IF_ERROR(file->read(is_own));
  return file;
}

Status PurgeFile::lock() {
  STEMMA_ASSIGN_OR_RETURN(lock_, FileLock::take(path_, "another process has it"));
  struct stat status = {};
  if (::fstat(lock_.descriptor(), &status) != 0) return file_failure(path_, "stat");
  if (S_ISREG(status.st_mode)) return {};
  return Error{ErrorCode::kInvalidArgument, path_ + ": not a regular file"};
}

Status PurgeFile::read(bool is_own) {
  PosixFiles files;
  const auto bytes = read_file(files, path_, kBytesMax);
  if (!bytes.ok()) return bytes.error();
  const std::string_view file = *bytes;
  if (file.empty()) {
    said_.emplace();
    return {};
  }
  said_ = read_copies(file);
  if (said_.has_value()) return {};
  if (!file.starts_with(kMagic) && !is_own) {
    return Error{ErrorCode::kInvalidArgument,
                 path_ + ": not a file of purges, and is not written over"};
  }
  if (!is_whole(file)) return {};
  if (version_of(file) > kVersion) {
    return Error{ErrorCode::kUnsupported, path_ + ": of a later version"};
  }
  if (version_of(file) == 1) said_ = read_body(file.substr(kHeaderBytes));
  return {};
}

Status PurgeFile::keep(const Unconfirmed& unconfirmed) {
  if (!opened_in_.is_here()) return {};
  STEMMA_ASSIGN_OR_RETURN(const int descriptor, write_new(file_of(unconfirmed)));
  // Whatever fails from here on, the name may be the new file's by then, for now or for good.
  said_.reset();
  if (::rename(new_path().c_str(), path_.c_str()) != 0) {
    const Error failed = file_failure(path_, "replace");
    ::close(descriptor);
    return failed;
  }
  lock_ = FileLock(descriptor);
  STEMMA_RETURN_IF_ERROR(sync_directory_of(path_));
  said_ = unconfirmed;
  return {};
}

// Open, and this process's before it has the name.
Result<int> PurgeFile::write_new(std::string_view bytes) const {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
  STEMMA_ASSIGN_OR_RETURN(
      const int descriptor,
      open_locked(
          new_path(), [this] { return ::open(new_path().c_str(), kFlags, 0600); },
          "another process writes it"));
  const char* failed_or_null = nullptr;
  while (!bytes.empty() && failed_or_null == nullptr) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      failed_or_null = "write";
    }
  }
  if (failed_or_null == nullptr && ::fsync(descriptor) != 0) failed_or_null = "sync";
  if (failed_or_null == nullptr) return descriptor;
  const Error failed = file_failure(new_path(), failed_or_null);
  ::close(descriptor);
  return failed;
}

}  // namespace stemma
