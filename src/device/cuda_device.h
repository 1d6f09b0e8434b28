// CudaDevice: a GPU as Stemma uses it: its memory, pinned host memory, streams, events, copies and
// recorded graphs.
//
// Work is queued on streams and done later, in the order of its stream; nothing here waits unless
// it says so. Copies to and from the host take pinned memory only: the bytes are read and written
// when the copy is done, not when it is queued. There is no managed memory: a device's address is
// never followed by the host.
//
// Two implementations have these declarations: cuda_device_native.cu (the CUDA runtime) and
// simt_device.cc (an emulated GPU, for tests without one: simt.h). A program links one of them.
//
// Thread:     a stream is used by one thread at a time; everything else from any thread.
// Memory:     what is allocated belongs to the caller and must not outlive the device; on a stream,
//             it is given back when the stream has come so far.
// Cost:       a call that queues takes a few microseconds.
// Not here:   kernels (cuda_dialect.h says how they are written and launched), products of matrices
//             (cuda_gemm.h), several GPUs at once: a process has one, ranks are processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "stemma/result.h"

namespace stemma {

class CudaDevice;

namespace cuda_detail {
// A handle of the runtime with one owner; Release gives it back.
template <void (*Release)(void*) noexcept>
class Handle {
 public:
  Handle() = default;
  explicit Handle(void* raw) noexcept : raw_(raw) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      raw_ = std::exchange(other.raw_, nullptr);
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void* raw() const noexcept { return raw_; }
  // Whoever made it has it again: nothing is given back here.
  void let_go() noexcept { raw_ = nullptr; }

 private:
  void reset() noexcept {
    if (raw_ != nullptr) Release(raw_);
    raw_ = nullptr;
  }

  void* raw_ = nullptr;
};

// Bytes of the runtime with one owner; Release gives them back. `stream`: that they came from, if
// they came from one.
template <void (*Release)(void* bytes, void* stream) noexcept>
class Memory {
 public:
  Memory() = default;
  Memory(void* bytes, std::size_t size_bytes, void* stream = nullptr) noexcept
      : bytes_(bytes), size_bytes_(size_bytes), stream_(stream) {}
  ~Memory() { release(); }
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    if (this != &other) {
      release();
      bytes_ = std::exchange(other.bytes_, nullptr);
      size_bytes_ = std::exchange(other.size_bytes_, 0);
      stream_ = std::exchange(other.stream_, nullptr);
    }
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Leaves this empty.
  void release() noexcept {
    if (bytes_ != nullptr) Release(bytes_, stream_);
    bytes_ = nullptr;
    size_bytes_ = 0;
  }

  std::byte* bytes() const noexcept { return static_cast<std::byte*>(bytes_); }
  template <typename T>
  T* as() const noexcept {
    return static_cast<T*>(bytes_);
  }
  std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  void* bytes_ = nullptr;
  std::size_t size_bytes_ = 0;
  void* stream_ = nullptr;
};

void release_stream(void* raw) noexcept;
void release_event(void* raw) noexcept;
void release_graph(void* raw) noexcept;
void release_reserve(void* raw) noexcept;
void release_memory(void* bytes, void* stream) noexcept;
void release_pinned(void* bytes, void* stream) noexcept;
}  // namespace cuda_detail

// What a device is, read once.
struct CudaTraits {
  std::string name;
  int capability = 0;  // 90: compute capability 9.0
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t team_shared_bytes_max = 0;  // shared memory that one team can ask for
  bool kernels_reach_pinned = true;        // memory that was given to pin; else copies alone do
  bool emulated = false;                   // no GPU: simt.h
};

// A point in a stream's work.
class CudaEvent {
 public:
  CudaEvent() = default;
  explicit CudaEvent(void* raw) noexcept : handle_(raw) {}

  // Whether the work before the last record is done; true if it was never recorded. Does not wait.
  Result<bool> done() const;
  // Waits for that.
  Status wait() const;
  // Milliseconds of the device's own clock from `start`, both recorded and done; made by
  // make_timer. Of an emulated device 0.
  Result<double> milliseconds_since(const CudaEvent& start) const;

  void* raw() const noexcept { return handle_.raw(); }

 private:
  cuda_detail::Handle<cuda_detail::release_event> handle_;
};

// Work recorded once, to be queued again and again as one thing.
class CudaGraph {
 public:
  CudaGraph() = default;
  explicit CudaGraph(void* raw) noexcept : handle_(raw) {}

  bool empty() const noexcept { return handle_.raw() == nullptr; }
  void* raw() const noexcept { return handle_.raw(); }

 private:
  cuda_detail::Handle<cuda_detail::release_graph> handle_;
};

// Rows of a copy between host and device: `rows` of `row_bytes` each, this far apart.
struct CudaRows {
  std::size_t row_bytes = 0;
  std::size_t rows = 0;
  std::size_t to_stride_bytes = 0;
  std::size_t from_stride_bytes = 0;
};

class CudaStream {
 public:
  CudaStream() = default;
  explicit CudaStream(void* raw) noexcept : handle_(raw) {}

  // Copies from pinned memory to the device, the other way, and within the device.
  // kInvalidArgument if the host's memory is not pinned.
  Status copy_in(void* device, const void* pinned, std::size_t size_bytes);
  Status copy_out(void* pinned, const void* device, std::size_t size_bytes);
  Status copy(void* to_device, const void* from_device, std::size_t size_bytes);
  // The same of rows that lie apart.
  Status copy_rows_in(void* device, const void* pinned, const CudaRows& rows);
  Status copy_rows_out(void* pinned, const void* device, const CudaRows& rows);
  // Sets every byte.
  Status fill(void* device, std::uint8_t value, std::size_t size_bytes);

  // `event` stands for what is queued up to here.
  Status record(CudaEvent& event);
  // What is queued from here on begins after what `event` stands for now.
  Status wait_for(const CudaEvent& event);
  // The calling thread waits until all that is queued here is done. Errors of kernels show here.
  Status synchronize();

  // Between the two, what is queued is kept instead of done. No allocation, no synchronize, no
  // other stream's event in between.
  Status begin_recording();
  Result<CudaGraph> end_recording();
  // Queues what was recorded. The graph may be gone then; all memory that it names must live until
  // it is done.
  Status replay(const CudaGraph& graph);

  void* raw() const noexcept { return handle_.raw(); }

 private:
  friend class BorrowedStream;
  cuda_detail::Handle<cuda_detail::release_stream> handle_;
};

// CUDA's default stream by a name of its own (cudaStreamLegacy): nullptr is a stream that was never
// made.
inline void* default_stream() noexcept {
  return reinterpret_cast<void*>(std::uintptr_t{1});
}

// A stream that somebody else made and will destroy: a cudaStream_t of an engine, nullptr CUDA's
// default one.
class BorrowedStream {
 public:
  explicit BorrowedStream(void* raw) noexcept : stream_(raw == nullptr ? default_stream() : raw) {}
  ~BorrowedStream() { stream_.handle_.let_go(); }
  BorrowedStream(const BorrowedStream&) = delete;
  BorrowedStream& operator=(const BorrowedStream&) = delete;

  CudaStream& get() noexcept { return stream_; }

 private:
  CudaStream stream_;
};

// Memory of a device, aligned to 256 bytes. Its addresses are the device's, its contents undefined
// at first. Released by queueing that on the stream it came from, which must outlive it.
using CudaMemory = cuda_detail::Memory<cuda_detail::release_memory>;

// Host memory that copies of a device can use, and kernels too, at the same address, over the link.
// Zeroed at first. Released when nothing that names it is queued.
using PinnedMemory = cuda_detail::Memory<cuda_detail::release_pinned>;

class CudaDevice {
 public:
  // Devices that there are; 0 also where there is no driver.
  static int count() noexcept;
  // kNotFound if there is no such device, with the runtime's words where it finds none at all;
  // kUnsupported if it is too old.
  static Result<std::unique_ptr<CudaDevice>> open(int ordinal);

  const CudaTraits& traits() const noexcept { return traits_; }
  int ordinal() const noexcept { return ordinal_; }

  // What the calling thread does is this device's from now on. For threads other than the one that
  // opened it, before they queue anything; cheap.
  Status use_in_thread();

  Result<CudaStream> make_stream();
  // Where multiprocessors become free its kernels go first, before those of other streams.
  Result<CudaStream> make_urgent_stream();
  Result<CudaEvent> make_event();
  Result<CudaEvent> make_timer();    // an event that knows the time
  Result<CudaEvent> make_sleeper();  // who waits for it leaves the core to others

  // Memory that may be used by work queued on `stream` from now on; by that of other streams after
  // an event. kOutOfMemory.
  Result<CudaMemory> allocate(std::size_t size_bytes, CudaStream& stream);
  Result<PinnedMemory> allocate_pinned(std::size_t size_bytes);

  // Lets copies and, where traits().kernels_reach_pinned, kernels use host memory that somebody
  // else owns, until unpin. REQUIRES: whole pages.
  Status pin(void* bytes, std::size_t size_bytes);
  void unpin(void* bytes) noexcept;

 private:
  CudaDevice(int ordinal, CudaTraits traits, void* reserve)
      : ordinal_(ordinal), traits_(std::move(traits)), reserve_(reserve) {}

  int ordinal_;
  CudaTraits traits_;
  // What was allocated and given back, for the next allocation; the system has it again when this
  // goes and nothing of it is in use.
  cuda_detail::Handle<cuda_detail::release_reserve> reserve_;
};

}  // namespace stemma
