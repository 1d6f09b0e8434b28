// SimtArena: the memory of an emulated GPU. The host may touch it only while it is open; what is
// handed out begins as bytes of 0xFF and lies between guards that are looked at when it comes back.
// With the address sanitizer reading beside it, or after it came back, ends the program too.
//
// Pools of many GiB are address space alone where nobody touches them: pieces that are kVastBytes
// or more begin as zeros but for their ends, and reading one that came back is not found.
//
// Thread:     one at a time.
// Memory:     address space. What was touched goes to the next arena of the same size: fresh pages
//             cost a virtual machine more than what is done with them.
// Cost:       allocate fills what it gives; open and close are a system call each. Filling what is
//             vast with zeros costs a system call.
// Not here:   streams (simt_runtime.h), kernels (simt.h).
#pragma once

#include <cstddef>
#include <map>

namespace stemma::simt {

class SimtArena {
 public:
  static constexpr std::size_t kVastBytes = std::size_t{256} << 20;

  explicit SimtArena(std::size_t size_bytes);
  // REQUIRES: all that was allocated came back.
  ~SimtArena();
  SimtArena(const SimtArena&) = delete;
  SimtArena& operator=(const SimtArena&) = delete;

  // Aligned to 256 bytes; nullptr if there is no room. Opens and closes.
  void* try_allocate(std::size_t size_bytes);
  // REQUIRES: `bytes` came from try_allocate. Ends the program if a guard was written to.
  void give_back(void* bytes);
  bool empty() const { return pieces_.empty(); }
  const std::byte* begin() const { return memory_; }

  // As memset. REQUIRES: it is open, and the bytes are of one piece.
  static void fill(void* bytes, int value, std::size_t size_bytes);

  // Nested.
  void open();
  void close();

 private:
  std::size_t find_room(std::size_t size_bytes) const;
  void check_guards(std::size_t begin, std::size_t size_bytes) const;

  std::size_t size_bytes_;
  std::byte* memory_;
  std::size_t used_end_ = 0;  // nothing was handed out from here on
  int opened_ = 0;
  std::map<std::size_t, std::size_t> pieces_;  // where each begins, and its bytes without guards
};

}  // namespace stemma::simt
