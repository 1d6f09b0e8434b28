// TempDirectory: a fresh directory for one test, removed with everything in it.
//
// Thread:     a value with one owner.
// Memory:     a path.
// Cost:       a mkdtemp.
// Not here:   anything that serves: programs write where they are told to.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/check.h"

namespace stemma {

class TempDirectory {
 public:
  TempDirectory() : TempDirectory(std::filesystem::temp_directory_path().string()) {}
  // In `parent`: for files that must lie on a disk, which /tmp may not.
  explicit TempDirectory(const std::string& parent) {
    path_ = (std::filesystem::path(parent) / "stemma_test_XXXXXX").string();
    STEMMA_CHECK(::mkdtemp(path_.data()) != nullptr, "tests need a writable temporary directory");
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const noexcept { return path_; }
  // The path of `name` in it.
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace stemma
