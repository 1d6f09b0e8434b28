#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace stemma {
namespace {

// Linux transfers at most 0x7ffff000 bytes a call.
constexpr std::size_t kReadBytesMax = std::size_t{1} << 30;

Error system_error(const std::string& path, const char* verb, int error_number) {
  const ErrorCode code =
      error_number == ENOENT || error_number == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
  return Error{code, path + ": cannot " + verb, error_number};
}

class PosixFile final : public ReadableFile {
 public:
  PosixFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  ~PosixFile() override { ::close(descriptor_); }
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  const std::string& path() const override { return path_; }
  std::int64_t size_bytes() const override { return size_bytes_; }
  Status read_exact(std::int64_t offset_bytes, std::span<std::byte> target) const override;
  void will_read(std::int64_t offset_bytes, std::int64_t bytes) const override {
    ::posix_fadvise(descriptor_, offset_bytes, bytes, POSIX_FADV_WILLNEED);
  }

  // Finds the size; an error unless this is a regular file.
  Status inspect();

 private:
  std::string path_;
  int descriptor_;
  std::int64_t size_bytes_ = 0;
};

Status PosixFile::inspect() {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0) {
    return system_error(path_, "stat", errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, path_ + ": not a regular file"};
  }
  size_bytes_ = status.st_size;
  return {};
}

Status PosixFile::read_exact(std::int64_t offset_bytes, std::span<std::byte> target) const {
  STEMMA_CHECK_GE(offset_bytes, 0);
  while (!target.empty()) {
    const std::size_t wanted = std::min(target.size(), kReadBytesMax);
    const ssize_t got = ::pread(descriptor_, target.data(), wanted, offset_bytes);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return system_error(path_, "read", errno);
    }
    if (got == 0) {
      return Error{ErrorCode::kCorrupt, path_ + ": ends at byte " + std::to_string(offset_bytes) +
                                            ", " + std::to_string(target.size()) +
                                            " bytes before it should"};
    }
    target = target.subspan(static_cast<std::size_t>(got));
    offset_bytes += got;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ReadableFile>> PosixFiles::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; it means nothing for regular files.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return system_error(path, "open", errno);
  }
  auto file = std::make_unique<PosixFile>(path, descriptor);
  STEMMA_RETURN_IF_ERROR(file->inspect());
  return std::unique_ptr<ReadableFile>(std::move(file));
}

Result<std::string> read_file(Files& files, const std::string& path, std::int64_t size_bytes_max) {
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.open(path));
  if (file->size_bytes() > size_bytes_max) {
    return Error{ErrorCode::kTooLarge, path + ": " + std::to_string(file->size_bytes()) +
                                           " bytes; at most " + std::to_string(size_bytes_max) +
                                           " are accepted"};
  }
  std::string text(static_cast<std::size_t>(file->size_bytes()), '\0');
  STEMMA_RETURN_IF_ERROR(file->read_exact(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<std::optional<std::string>> read_file_if_exists(Files& files, const std::string& path,
                                                       std::int64_t size_bytes_max) {
  Result<std::string> text = read_file(files, path, size_bytes_max);
  if (text.ok()) return std::optional<std::string>(*std::move(text));
  if (text.error().code == ErrorCode::kNotFound) return std::optional<std::string>();
  return text.error();
}

std::string join_path(const std::string& directory, const std::string& name) {
  if (directory.empty() || directory.back() == '/') {
    return directory + name;
  }
  return directory + "/" + name;
}

}  // namespace stemma
