// The emulated GPU behind the declarations of cuda_device.h.
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "device/buffer.h"
#include "device/cuda_device.h"
#include "device/simt.h"
#include "device/simt_runtime.h"

namespace stemma {

using simt::event_of;
using simt::Runtime;
using simt::runtime;
using simt::stream_of;
using Lock = std::lock_guard<std::mutex>;

namespace {

// A copy with the host, which must be pinned: over all that it spans.
struct HostCopy {
  const void* host;
  std::size_t host_bytes;
  std::function<void()> run;
};

Status queue_host_copy(void* raw, HostCopy copy) {
  const Lock lock(runtime().mutex());
  if (copy.host_bytes == 0) return {};
  runtime().check_used_in_thread();
  if (!runtime().is_pinned(copy.host, copy.host_bytes)) {
    return Error{ErrorCode::kInvalidArgument, "a copy of host memory that is not pinned", 0};
  }
  return runtime().queue(
      stream_of(raw),
      {.run = std::move(copy.run), .host_or_null = copy.host, .name = "a copy with the host"});
}

void copy_now(void* to, const void* from, std::size_t size_bytes) {
  runtime().read(from, size_bytes);
  runtime().write(to, size_bytes);
  std::memcpy(to, from, size_bytes);
}

std::function<void()> bytes_copied(void* to, const void* from, std::size_t size_bytes) {
  return [=] { copy_now(to, from, size_bytes); };
}

std::function<void()> rows_copied(void* to, const void* from, const CudaRows& rows) {
  return [=] {
    for (std::size_t row = 0; row < rows.rows; ++row) {
      copy_now(static_cast<std::byte*>(to) + row * rows.to_stride_bytes,
               static_cast<const std::byte*>(from) + row * rows.from_stride_bytes, rows.row_bytes);
    }
  };
}

std::size_t span_of(const CudaRows& rows, std::size_t stride_bytes) {
  return rows.rows == 0 ? 0 : (rows.rows - 1) * stride_bytes + rows.row_bytes;
}

// The runtime wants rows that do not overlap, and no farther apart than it can say.
Status check_strides(const CudaRows& rows) {
  for (const std::size_t stride : {rows.to_stride_bytes, rows.from_stride_bytes}) {
    if (rows.rows == 0 || (stride >= rows.row_bytes && stride <= INT32_MAX)) continue;
    return Error{ErrorCode::kInternal, "rows " + std::to_string(stride) + " bytes apart", 0};
  }
  return {};
}

}  // namespace

namespace cuda_detail {

void release_stream(void* raw) noexcept {
  const Lock lock(runtime().mutex());
  runtime().release_stream(static_cast<simt::Stream*>(raw));
}

void release_event(void* raw) noexcept {
  std::unique_ptr<simt::Event>(static_cast<simt::Event*>(raw)).reset();
}

void release_graph(void* raw) noexcept {
  std::unique_ptr<simt::Graph>(static_cast<simt::Graph*>(raw)).reset();
}

void release_reserve(void*) noexcept {}  // memory that is given back goes to the arena

void release_memory(void* bytes, void* raw) noexcept {
  const Lock lock(runtime().mutex());
  simt::Stream& stream = stream_of(raw);
  STEMMA_CHECK(!stream.recording.has_value(), "memory is given back while a stream records");
  runtime().push(stream, {.run = [bytes] { runtime().give_back(bytes); },
                          .when_failed = true,
                          .name = "memory given back"});
}

void release_pinned(void* bytes, void*) noexcept {
  const Lock lock(runtime().mutex());
  runtime().unpin(bytes);
  runtime().pinned_buffers.erase(bytes);
}

}  // namespace cuda_detail

Result<bool> CudaEvent::done() const {
  const Lock lock(runtime().mutex());
  runtime().let_time_pass();
  if (runtime().failed()) return runtime().broken();
  const simt::Event& event = event_of(raw());
  const bool is_done = runtime().is_done(event.ticket);
  if (is_done) runtime().see(event.clock);
  return is_done;
}

Status CudaEvent::wait() const {
  const Lock lock(runtime().mutex());
  const simt::Event& event = event_of(raw());
  runtime().run_until([&] { return runtime().is_done(event.ticket); });
  if (runtime().failed()) return runtime().broken();
  runtime().see(event.clock);
  return {};
}

Result<double> CudaEvent::milliseconds_since(const CudaEvent&) const {
  return 0.0;
}

Status CudaStream::copy_in(void* device, const void* pinned, std::size_t size_bytes) {
  return queue_host_copy(raw(), {pinned, size_bytes, bytes_copied(device, pinned, size_bytes)});
}

Status CudaStream::copy_out(void* pinned, const void* device, std::size_t size_bytes) {
  return queue_host_copy(raw(), {pinned, size_bytes, bytes_copied(pinned, device, size_bytes)});
}

Status CudaStream::copy(void* to_device, const void* from_device, std::size_t size_bytes) {
  if (size_bytes == 0) return {};
  return simt::queue_work(raw(), "a copy", bytes_copied(to_device, from_device, size_bytes));
}

Status CudaStream::copy_rows_in(void* device, const void* pinned, const CudaRows& rows) {
  STEMMA_RETURN_IF_ERROR(check_strides(rows));
  return queue_host_copy(
      raw(), {pinned, span_of(rows, rows.from_stride_bytes), rows_copied(device, pinned, rows)});
}

Status CudaStream::copy_rows_out(void* pinned, const void* device, const CudaRows& rows) {
  STEMMA_RETURN_IF_ERROR(check_strides(rows));
  return queue_host_copy(
      raw(), {pinned, span_of(rows, rows.to_stride_bytes), rows_copied(pinned, device, rows)});
}

Status CudaStream::fill(void* device, std::uint8_t value, std::size_t size_bytes) {
  if (size_bytes == 0) return {};
  return simt::queue_work(raw(), "a fill", [=] {
    runtime().write(device, size_bytes);
    simt::SimtArena::fill(device, value, size_bytes);
  });
}

Status CudaStream::record(CudaEvent& event) {
  const Lock lock(runtime().mutex());
  runtime().check_used_in_thread();
  simt::Stream& stream = stream_of(raw());
  if (stream.recording.has_value()) {
    return Error{ErrorCode::kUnsupported, "an event while a stream records", 0};
  }
  STEMMA_RETURN_IF_ERROR(runtime().may_queue("an event"));
  simt::Event& recorded = event_of(event.raw());
  recorded.ticket = runtime().next_ticket();
  recorded.clock = stream.clock;
  runtime().push(stream, {.run = {}, .gives = recorded.ticket});
  return {};
}

Status CudaStream::wait_for(const CudaEvent& event) {
  const Lock lock(runtime().mutex());
  runtime().check_used_in_thread();
  simt::Stream& stream = stream_of(raw());
  if (stream.recording.has_value()) {
    return Error{ErrorCode::kUnsupported, "an event while a stream records", 0};
  }
  STEMMA_RETURN_IF_ERROR(runtime().may_queue("waiting for an event"));
  const simt::Event& awaited = event_of(event.raw());
  simt::join(stream.clock, awaited.clock);
  runtime().push(stream, {.run = {}, .waits_for = awaited.ticket});
  return {};
}

Status CudaStream::synchronize() {
  const Lock lock(runtime().mutex());
  simt::Stream& stream = stream_of(raw());
  if (stream.recording.has_value()) {
    return Error{ErrorCode::kUnsupported, "synchronize while a stream records", 0};
  }
  runtime().run_until([&] { return stream.queue.empty(); });
  if (runtime().failed()) return runtime().broken();
  runtime().see(stream.clock);
  return {};
}

Status CudaStream::begin_recording() {
  const Lock lock(runtime().mutex());
  runtime().check_used_in_thread();
  simt::Stream& stream = stream_of(raw());
  STEMMA_CHECK(!stream.recording.has_value(), "a stream records once at a time");
  stream.recording.emplace();
  stream.recorder = std::this_thread::get_id();
  return {};
}

Result<CudaGraph> CudaStream::end_recording() {
  const Lock lock(runtime().mutex());
  simt::Stream& stream = stream_of(raw());
  STEMMA_CHECK(stream.recording.has_value(), "recording has begun");
  auto graph = std::make_unique<simt::Graph>(simt::Graph{std::move(*stream.recording)});
  stream.recording.reset();
  STEMMA_RETURN_IF_ERROR(runtime().take_memory("a graph"));
  return CudaGraph(graph.release());
}

Status CudaStream::replay(const CudaGraph& graph) {
  STEMMA_CHECK(!graph.empty(), "a graph that was recorded");
  const Lock lock(runtime().mutex());
  runtime().check_used_in_thread();
  STEMMA_RETURN_IF_ERROR(runtime().may_queue("a graph"));
  STEMMA_RETURN_IF_ERROR(runtime().take_memory("a graph that is queued"));
  for (const simt::Work& work : static_cast<simt::Graph*>(graph.raw())->works) {
    runtime().push(stream_of(raw()), work);
  }
  return {};
}

int CudaDevice::count() noexcept {
  return simt::has_runtime() ? 1 : 0;
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(int ordinal) {
  if (ordinal < 0 || ordinal >= count()) {
    return Error{ErrorCode::kNotFound,
                 "no GPU " + std::to_string(ordinal) + ": there are " + std::to_string(count()), 0};
  }
  CudaTraits traits;
  traits.name = "emulated GPU";
  traits.capability = 90;
  traits.multiprocessors = runtime().options().multiprocessors;
  traits.memory_bytes = static_cast<std::int64_t>(runtime().options().memory_bytes);
  traits.l2_bytes = std::int64_t{1} << 20;
  traits.team_shared_bytes_max = simt::team_shared_bytes_max();
  traits.kernels_reach_pinned = runtime().options().kernels_reach_pinned;
  traits.emulated = true;
  runtime().use_in_thread();
  simt::ask_about_launches();
  return std::unique_ptr<CudaDevice>(new CudaDevice(ordinal, std::move(traits), nullptr));
}

Status CudaDevice::use_in_thread() {
  runtime().use_in_thread();
  return {};
}

Result<CudaStream> CudaDevice::make_stream() {
  STEMMA_RETURN_IF_ERROR(use_in_thread());
  const Lock lock(runtime().mutex());
  STEMMA_RETURN_IF_ERROR(runtime().take_memory("a stream"));
  return CudaStream(runtime().make_stream());
}

// Orders are drawn, whatever is urgent.
Result<CudaStream> CudaDevice::make_urgent_stream() {
  return make_stream();
}

Result<CudaEvent> CudaDevice::make_event() {
  STEMMA_RETURN_IF_ERROR(use_in_thread());
  const Lock lock(runtime().mutex());
  STEMMA_RETURN_IF_ERROR(runtime().take_memory("an event"));
  return CudaEvent(std::make_unique<simt::Event>().release());
}

Result<CudaEvent> CudaDevice::make_timer() {
  return make_event();
}

Result<CudaEvent> CudaDevice::make_sleeper() {
  return make_event();
}

Result<CudaMemory> CudaDevice::allocate(std::size_t size_bytes, CudaStream& stream) {
  if (size_bytes == 0) return CudaMemory();
  const Lock lock(runtime().mutex());
  if (runtime().failed()) return runtime().broken();
  runtime().check_used_in_thread();
  STEMMA_CHECK(!stream_of(stream.raw()).recording.has_value(),
               "memory is allocated while a stream records");
  void* const bytes = runtime().try_allocate(size_bytes, stream_of(stream.raw()));
  if (bytes == nullptr) {
    return Error{ErrorCode::kOutOfMemory,
                 "cannot allocate " + std::to_string(size_bytes) + " bytes of GPU memory", 0};
  }
  return CudaMemory(bytes, size_bytes, stream.raw());
}

Result<PinnedMemory> CudaDevice::allocate_pinned(std::size_t size_bytes) {
  if (size_bytes == 0) return PinnedMemory();
  STEMMA_RETURN_IF_ERROR(use_in_thread());
  STEMMA_ASSIGN_OR_RETURN(Buffer buffer, Buffer::allocate(size_bytes));
  const Lock lock(runtime().mutex());
  STEMMA_RETURN_IF_ERROR(runtime().take_memory("pinned bytes"));
  void* const bytes = buffer.bytes();
  runtime().pin(bytes, size_bytes);
  runtime().pinned_buffers.emplace(bytes, std::move(buffer));
  return PinnedMemory(bytes, size_bytes);
}

Status CudaDevice::pin(void* bytes, std::size_t size_bytes) {
  STEMMA_RETURN_IF_ERROR(use_in_thread());
  const Lock lock(runtime().mutex());
  if (runtime().is_partly_pinned(bytes, size_bytes)) {
    return Error{ErrorCode::kInternal, "host memory that is pinned already", 0};
  }
  STEMMA_RETURN_IF_ERROR(runtime().take_memory("pinning"));
  runtime().pin(bytes, size_bytes);
  return {};
}

void CudaDevice::unpin(void* bytes) noexcept {
  const Lock lock(runtime().mutex());
  runtime().unpin(bytes);
}

}  // namespace stemma
