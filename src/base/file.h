// File: reading files whole or in exact pieces, behind an interface that tests can make fail.
//
// Nothing is mapped: a file that shrinks while it is read is an error here, not a signal.
//
// Thread:     PosixFiles is stateless; a ReadableFile may be read from several threads.
// Memory:     one descriptor a file; the bytes go where the caller says.
// Cost:       one pread for each piece (more if the system returns less).
// Not here:   writing, direct I/O (tier/), what the bytes mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "stemma/result.h"

namespace stemma {

// A regular file opened for reading.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  // As given to open; errors name it.
  virtual const std::string& path() const = 0;

  // Its size when it was opened.
  virtual std::int64_t size_bytes() const = 0;

  // Fills `target` with the bytes from `offset_bytes` on. kCorrupt if the file ends before that,
  // kIo with errno if the system refuses; `target` is then unspecified. REQUIRES: offset_bytes >=
  // 0.
  virtual Status read_exact(std::int64_t offset_bytes, std::span<std::byte> target) const = 0;

  // Says what will be read soon, so that the system may begin to fetch it. May do nothing.
  virtual void will_read(std::int64_t offset_bytes, std::int64_t bytes) const {
    static_cast<void>(offset_bytes);
    static_cast<void>(bytes);
  }
};

// Where files come from.
class Files {
 public:
  virtual ~Files() = default;

  // kNotFound if there is no such file; kInvalidArgument if it is not a regular file; kIo with
  // errno otherwise.
  virtual Result<std::unique_ptr<ReadableFile>> open(const std::string& path) = 0;
};

// The operating system's files.
class PosixFiles final : public Files {
 public:
  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override;
};

// All bytes of a file. kTooLarge, before anything is read, if it holds more than `size_bytes_max`.
Result<std::string> read_file(Files& files, const std::string& path, std::int64_t size_bytes_max);

// The same; nothing where there is no such file.
Result<std::optional<std::string>> read_file_if_exists(Files& files, const std::string& path,
                                                       std::int64_t size_bytes_max);

// "DIR/NAME" with exactly one slash between them.
std::string join_path(const std::string& directory, const std::string& name);

}  // namespace stemma
