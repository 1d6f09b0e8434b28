// DraftFile: a file that takes the place of another, or a name that none has, once it is whole.
//
// Thread:     one thread an object.
// Memory:     two paths.
// Cost:       system calls.
// Not here:   writing it, and files that outlive a loss of power (store/directory_files).
#pragma once

#include <string>
#include <system_error>

namespace stemma {

// Whether nothing has that name, or a regular file, links followed.
bool is_replaceable(const std::string& path);

class DraftFile {
 public:
  // Beside `path`, or, where that is a link, beside what it names, be that there or not.
  explicit DraftFile(const std::string& path);
  // Removes what has not taken its name.
  ~DraftFile();
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;

  // Where it is to be written; nobody else's.
  const std::string& path() const noexcept { return path_; }

  // It has its name from now on, and the rights of the file that had it; or why not.
  std::error_code take_name() const;

 private:
  std::string target_;
  std::string path_;
};

}  // namespace stemma
