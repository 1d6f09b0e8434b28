#include "base/draft_file.h"

#include <unistd.h>

#include <filesystem>

namespace stemma {

namespace {

namespace fs = std::filesystem;

std::string behind_links(const std::string& path) {
  constexpr int kLinksMax = 40;
  fs::path target = path;
  std::error_code error;
  for (int links = 0; links < kLinksMax && fs::is_symlink(target, error); ++links) {
    target = target.parent_path() / fs::read_symlink(target, error);
  }
  return target.string();
}

}  // namespace

bool is_replaceable(const std::string& path) {
  std::error_code unknown;
  const fs::file_status there = fs::status(path, unknown);
  return !fs::exists(there) || fs::is_regular_file(there);
}

DraftFile::DraftFile(const std::string& path)
    : target_(behind_links(path)), path_(target_ + "." + std::to_string(::getpid()) + ".new") {}

DraftFile::~DraftFile() {
  std::error_code gone;
  fs::remove(path_, gone);
}

std::error_code DraftFile::take_name() const {
  std::error_code error;
  const fs::file_status before = fs::status(target_, error);
  if (fs::exists(before)) fs::permissions(path_, before.permissions(), error);
  fs::rename(path_, target_, error);
  return error;
}

}  // namespace stemma
