// Files below /proc and /sys as a test wants them.
//
// Thread:     a test's.
// Memory:     a directory on the disk.
// Cost:       writes files.
// Not here:   what is read from them (control_groups, cpu_quota, memory_room).
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/temp_directory.h"

namespace stemma {

// A machine without limits.
class SystemFilesFixture : public testing::Test {
 protected:
  SystemFilesFixture() { write("/proc/self/cgroup", "0::/\n"); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root() + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  const std::string& root() const { return directory_.path(); }

 private:
  TempDirectory directory_;
};

}  // namespace stemma
