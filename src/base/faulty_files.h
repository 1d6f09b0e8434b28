// FaultyFiles: files whose Nth operation fails, for tests that fail every operation in turn.
//
// Thread:     one thread.
// Memory:     none beyond the files it wraps.
// Cost:       a counter.
// Not here:   short reads and corruption (tests write such files).
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/file.h"

namespace stemma {

// Passes everything to `inner` except operation `fail_at` (0 is the first), which fails with EIO.
// `inner` must outlive it; files must not outlive it.
class FaultyFiles final : public Files {
 public:
  FaultyFiles(Files& inner, std::int64_t fail_at) : inner_(inner), fail_at_(fail_at) {}

  // Operations asked for so far, the failed one included.
  std::int64_t operations() const { return operations_; }
  bool failed() const { return operations_ > fail_at_; }

  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    STEMMA_RETURN_IF_ERROR(next(path));
    STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, inner_.open(path));
    return std::unique_ptr<ReadableFile>(std::make_unique<FaultyFile>(*this, std::move(file)));
  }

 private:
  class FaultyFile final : public ReadableFile {
   public:
    FaultyFile(FaultyFiles& files, std::unique_ptr<ReadableFile> inner)
        : files_(files), inner_(std::move(inner)) {}
    const std::string& path() const override { return inner_->path(); }
    std::int64_t size_bytes() const override { return inner_->size_bytes(); }
    Status read_exact(std::int64_t offset_bytes, std::span<std::byte> target) const override {
      STEMMA_RETURN_IF_ERROR(files_.next(path()));
      return inner_->read_exact(offset_bytes, target);
    }

   private:
    FaultyFiles& files_;
    std::unique_ptr<ReadableFile> inner_;
  };

  Status next(const std::string& path) {
    if (operations_++ == fail_at_) {
      return Error{ErrorCode::kIo, path + ": injected fault", EIO};
    }
    return {};
  }

  Files& inner_;
  std::int64_t fail_at_;
  std::int64_t operations_ = 0;
};

}  // namespace stemma
