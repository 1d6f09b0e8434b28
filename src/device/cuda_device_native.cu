// The CUDA runtime behind the declarations of cuda_device.h. Errors of earlier, asynchronous work
// may show in any call; each is reported where it shows.
#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "device/cuda_device.h"
#include "device/cuda_dialect.h"

namespace stemma {

namespace {

constexpr int kCapabilityMin = 80;

// While it lives, what the thread does has nothing to do with recordings of other threads. By
// default a thread that waits or asks for memory while another one records in CUDA's strictest
// mode, as engines do, is refused, and what is recorded is void; that its copies are still on their
// way, a refused wait would not say.
class BesideRecordings {
 public:
  BesideRecordings() noexcept { exchange(); }
  ~BesideRecordings() { exchange(); }
  BesideRecordings(const BesideRecordings&) = delete;
  BesideRecordings& operator=(const BesideRecordings&) = delete;

 private:
  void exchange() noexcept {
    ignore_error(status_of("cudaThreadExchangeStreamCaptureMode",
                           cudaThreadExchangeStreamCaptureMode(&mode_)),
                 "the mode is what it was");
  }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeThreadLocal;  // the other one
};

cudaStream_t native_stream(const void* raw) {
  return static_cast<cudaStream_t>(const_cast<void*>(raw));
}
cudaEvent_t native_event(const CudaEvent& event) {
  return static_cast<cudaEvent_t>(event.raw());
}

// Of a stream that records, an event would stand for what is recorded: who waits for it, on
// whatever stream, becomes part of the recording, and who waits on the stream for another one ends
// it.
Status check_not_recording(const CudaStream& stream) {
  cudaStreamCaptureStatus recording = cudaStreamCaptureStatusNone;
  STEMMA_RETURN_IF_ERROR(status_of("cudaStreamIsCapturing",
                                   cudaStreamIsCapturing(native_stream(stream.raw()), &recording)));
  if (recording == cudaStreamCaptureStatusNone) return {};
  return Error{ErrorCode::kUnsupported, "an event while a stream records", 0};
}

// The runtime would copy pageable memory in its own time and order.
Status check_pinned(const void* host) {
  cudaPointerAttributes attributes = {};
  STEMMA_RETURN_IF_ERROR(
      status_of("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, host)));
  if (attributes.type == cudaMemoryTypeHost) return {};
  return Error{ErrorCode::kInvalidArgument, "a copy of host memory that is not pinned", 0};
}

Status copy_rows(void* to, const void* from, const CudaRows& rows, cudaMemcpyKind kind,
                 void* stream) {
  return status_of("cudaMemcpy2DAsync",
                   cudaMemcpy2DAsync(to, rows.to_stride_bytes, from, rows.from_stride_bytes,
                                     rows.row_bytes, rows.rows, kind, native_stream(stream)));
}

Result<CudaEvent> make_event_with(unsigned flags) {
  cudaEvent_t event = nullptr;
  STEMMA_RETURN_IF_ERROR(status_of("cudaEventCreate", cudaEventCreateWithFlags(&event, flags)));
  return CudaEvent(event);
}

// Memory of its own: what the rest of the process allocates is none of its business.
Result<cudaMemPool_t> make_reserve(int ordinal) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal;
  cudaMemPool_t reserve = nullptr;
  STEMMA_RETURN_IF_ERROR(status_of("cudaMemPoolCreate", cudaMemPoolCreate(&reserve, &properties)));
  return reserve;
}

// Compiled for the GPUs that all kernels are compiled for but those of hopper_*.cu.
__global__ void no_work() {}

// What launches want to know of the thread's device.
struct LaunchTraits {
  bool begins_early = false;
  int team_shared_bytes = 0;
};

// REQUIRES: `device` is the thread's.
Result<LaunchTraits> ask_launch_traits(int device) {
  constexpr int kAwaitingPtx = 90;  // from which on await_turn is an instruction
  const BesideRecordings beside;
  cudaFuncAttributes attributes = {};
  STEMMA_RETURN_IF_ERROR(
      status_of("cudaFuncGetAttributes", cudaFuncGetAttributes(&attributes, no_work)));
  LaunchTraits traits = {.begins_early = attributes.ptxVersion >= kAwaitingPtx};
  STEMMA_RETURN_IF_ERROR(
      status_of("cudaDeviceGetAttribute",
                cudaDeviceGetAttribute(&traits.team_shared_bytes,
                                       cudaDevAttrMaxSharedMemoryPerBlockOptin, device)));
  return traits;
}

// Asked when a device is opened: the question loads a kernel, which is no business of a launch
// while some thread records. What went wrong is not kept: it may not the next time.
Result<LaunchTraits> launch_traits() {
  constexpr int kDevicesMax = 64;
  static std::array<std::atomic<LaunchTraits>, std::size_t{kDevicesMax}> all;  // no bytes: unasked
  int device = 0;
  STEMMA_RETURN_IF_ERROR(status_of("cudaGetDevice", cudaGetDevice(&device)));
  if (device >= kDevicesMax) return ask_launch_traits(device);
  std::atomic<LaunchTraits>& kept = all[static_cast<std::size_t>(device)];
  const LaunchTraits known = kept.load();
  if (known.team_shared_bytes > 0) return known;
  STEMMA_ASSIGN_OR_RETURN(const LaunchTraits traits, ask_launch_traits(device));
  kept.store(traits);
  return traits;
}

}  // namespace

namespace cuda_detail {

void release_stream(void* raw) noexcept {
  ignore_error(status_of("cudaStreamDestroy", cudaStreamDestroy(native_stream(raw))),
               "nothing is left to be told");
}

void release_event(void* raw) noexcept {
  ignore_error(status_of("cudaEventDestroy", cudaEventDestroy(static_cast<cudaEvent_t>(raw))),
               "nothing is left to be told");
}

void release_graph(void* raw) noexcept {
  ignore_error(
      status_of("cudaGraphExecDestroy", cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(raw))),
      "nothing is left to be told");
}

void release_reserve(void* raw) noexcept {
  ignore_error(status_of("cudaMemPoolDestroy", cudaMemPoolDestroy(static_cast<cudaMemPool_t>(raw))),
               "nothing is left to be told");
}

void release_memory(void* bytes, void* stream) noexcept {
  ignore_error(status_of("cudaFreeAsync", cudaFreeAsync(bytes, native_stream(stream))),
               "nothing is left to be told");
}

void release_pinned(void* bytes, void*) noexcept {
  const BesideRecordings beside;
  ignore_error(status_of("cudaFreeHost", cudaFreeHost(bytes)), "nothing is left to be told");
}

}  // namespace cuda_detail

Result<bool> CudaEvent::done() const {
  const BesideRecordings beside;
  const cudaError_t error = cudaEventQuery(native_event(*this));
  if (error == cudaErrorNotReady) return false;
  STEMMA_RETURN_IF_ERROR(status_of("cudaEventQuery", error));
  return true;
}

Status CudaEvent::wait() const {
  const BesideRecordings beside;
  return status_of("cudaEventSynchronize", cudaEventSynchronize(native_event(*this)));
}

Result<double> CudaEvent::milliseconds_since(const CudaEvent& start) const {
  float milliseconds = 0;
  STEMMA_RETURN_IF_ERROR(
      status_of("cudaEventElapsedTime",
                cudaEventElapsedTime(&milliseconds, native_event(start), native_event(*this))));
  return double{milliseconds};
}

Status CudaStream::copy_in(void* device, const void* pinned, std::size_t size_bytes) {
  if (size_bytes == 0) return {};
  STEMMA_RETURN_IF_ERROR(check_pinned(pinned));
  return status_of(
      "cudaMemcpyAsync",
      cudaMemcpyAsync(device, pinned, size_bytes, cudaMemcpyHostToDevice, native_stream(raw())));
}

Status CudaStream::copy_out(void* pinned, const void* device, std::size_t size_bytes) {
  if (size_bytes == 0) return {};
  STEMMA_RETURN_IF_ERROR(check_pinned(pinned));
  return status_of(
      "cudaMemcpyAsync",
      cudaMemcpyAsync(pinned, device, size_bytes, cudaMemcpyDeviceToHost, native_stream(raw())));
}

Status CudaStream::copy(void* to_device, const void* from_device, std::size_t size_bytes) {
  if (size_bytes == 0) return {};
  return status_of("cudaMemcpyAsync",
                   cudaMemcpyAsync(to_device, from_device, size_bytes, cudaMemcpyDeviceToDevice,
                                   native_stream(raw())));
}

Status CudaStream::copy_rows_in(void* device, const void* pinned, const CudaRows& rows) {
  if (rows.rows == 0 || rows.row_bytes == 0) return {};
  STEMMA_RETURN_IF_ERROR(check_pinned(pinned));
  return copy_rows(device, pinned, rows, cudaMemcpyHostToDevice, raw());
}

Status CudaStream::copy_rows_out(void* pinned, const void* device, const CudaRows& rows) {
  if (rows.rows == 0 || rows.row_bytes == 0) return {};
  STEMMA_RETURN_IF_ERROR(check_pinned(pinned));
  return copy_rows(pinned, device, rows, cudaMemcpyDeviceToHost, raw());
}

Status CudaStream::fill(void* device, std::uint8_t value, std::size_t size_bytes) {
  if (size_bytes == 0) return {};
  return status_of("cudaMemsetAsync",
                   cudaMemsetAsync(device, value, size_bytes, native_stream(raw())));
}

Status CudaStream::record(CudaEvent& event) {
  STEMMA_RETURN_IF_ERROR(check_not_recording(*this));
  return status_of("cudaEventRecord", cudaEventRecord(native_event(event), native_stream(raw())));
}

Status CudaStream::wait_for(const CudaEvent& event) {
  STEMMA_RETURN_IF_ERROR(check_not_recording(*this));
  return status_of("cudaStreamWaitEvent",
                   cudaStreamWaitEvent(native_stream(raw()), native_event(event), 0));
}

Status CudaStream::synchronize() {
  const BesideRecordings beside;
  return status_of("cudaStreamSynchronize", cudaStreamSynchronize(native_stream(raw())));
}

Status CudaStream::begin_recording() {
  return status_of("cudaStreamBeginCapture",
                   cudaStreamBeginCapture(native_stream(raw()), cudaStreamCaptureModeThreadLocal));
}

Result<CudaGraph> CudaStream::end_recording() {
  cudaGraph_t graph = nullptr;
  STEMMA_RETURN_IF_ERROR(
      status_of("cudaStreamEndCapture", cudaStreamEndCapture(native_stream(raw()), &graph)));
  cudaGraphExec_t executable = nullptr;
  const Status made =
      status_of("cudaGraphInstantiate", cudaGraphInstantiate(&executable, graph, 0));
  static_cast<void>(cudaGraphDestroy(graph));
  STEMMA_RETURN_IF_ERROR(made);
  return CudaGraph(executable);
}

Status CudaStream::replay(const CudaGraph& graph) {
  STEMMA_CHECK(!graph.empty(), "a graph that was recorded");
  return status_of("cudaGraphLaunch", cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.raw()),
                                                      native_stream(raw())));
}

bool can_begin_early() {
  const Result<LaunchTraits> traits = launch_traits();
  return traits.ok() && traits->begins_early;
}

std::int64_t team_shared_bytes_max() {
  const Result<LaunchTraits> traits = launch_traits();
  return traits.ok() ? traits->team_shared_bytes : 0;
}

cudaError_t prepare_kernel(const void* kernel, std::size_t shared_bytes, bool early) {
  struct Prepared {
    std::size_t shared_bytes = 48 << 10;  // what any kernel may have
    bool early = false;
  };
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, Prepared> all;
  if (shared_bytes <= Prepared().shared_bytes && !early) return cudaSuccess;
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const std::scoped_lock lock(mutex);
  Prepared& prepared = all[{kernel, device}];
  if (early && !prepared.early) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
    prepared.early = error == cudaSuccess;
  }
  if (error == cudaSuccess && shared_bytes > prepared.shared_bytes) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes));
    if (error == cudaSuccess) prepared.shared_bytes = shared_bytes;
  }
  return error;
}

Status status_of(std::string_view what, cudaError_t error) {
  if (error == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  const ErrorCode code =
      error == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kInternal;
  return Error{code, std::string(what) + ": " + cudaGetErrorString(error), 0};
}

int CudaDevice::count() noexcept {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess) return devices;
  static_cast<void>(cudaGetLastError());
  return 0;
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(int ordinal) {
  int devices = 0;
  const Status counted = status_of("cudaGetDeviceCount", cudaGetDeviceCount(&devices));
  if (!counted.ok() || ordinal < 0 || ordinal >= devices) {
    // There may be some: a driver that is too old counts none either.
    const std::string why =
        counted.ok() ? "there are " + std::to_string(devices) : counted.error().detail;
    return Error{ErrorCode::kNotFound, "no GPU " + std::to_string(ordinal) + ": " + why, 0};
  }
  STEMMA_RETURN_IF_ERROR(status_of("cudaSetDevice", cudaSetDevice(ordinal)));
  cudaDeviceProp properties = {};
  STEMMA_RETURN_IF_ERROR(
      status_of("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, ordinal)));
  CudaTraits traits;
  traits.name = properties.name;
  traits.capability = properties.major * 10 + properties.minor;
  traits.multiprocessors = properties.multiProcessorCount;
  traits.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  traits.l2_bytes = properties.l2CacheSize;
  traits.team_shared_bytes_max = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
  // Not on WSL, where what was registered has another address for kernels.
  int reach = 0;
  STEMMA_RETURN_IF_ERROR(status_of(
      "cudaDeviceGetAttribute",
      cudaDeviceGetAttribute(&reach, cudaDevAttrCanUseHostPointerForRegisteredMem, ordinal)));
  traits.kernels_reach_pinned = reach != 0;
  if (traits.capability < kCapabilityMin) {
    return Error{ErrorCode::kUnsupported,
                 traits.name + ": compute capability " + std::to_string(traits.capability / 10) +
                     "." + std::to_string(traits.capability % 10) + " is below 8.0",
                 0};
  }
  STEMMA_RETURN_IF_ERROR(launch_traits());
  STEMMA_ASSIGN_OR_RETURN(cudaMemPool_t reserve, make_reserve(ordinal));
  std::unique_ptr<CudaDevice> device(new CudaDevice(ordinal, std::move(traits), reserve));
  std::uint64_t keep = UINT64_MAX;
  STEMMA_RETURN_IF_ERROR(
      status_of("cudaMemPoolSetAttribute",
                cudaMemPoolSetAttribute(reserve, cudaMemPoolAttrReleaseThreshold, &keep)));
  return {std::move(device)};
}

Status CudaDevice::use_in_thread() {
  return status_of("cudaSetDevice", cudaSetDevice(ordinal_));
}

Result<CudaStream> CudaDevice::make_stream() {
  STEMMA_RETURN_IF_ERROR(use_in_thread());
  cudaStream_t stream = nullptr;
  STEMMA_RETURN_IF_ERROR(
      status_of("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
  return CudaStream(stream);
}

Result<CudaStream> CudaDevice::make_urgent_stream() {
  STEMMA_RETURN_IF_ERROR(use_in_thread());
  int least = 0;
  int greatest = 0;
  STEMMA_RETURN_IF_ERROR(status_of("cudaDeviceGetStreamPriorityRange",
                                   cudaDeviceGetStreamPriorityRange(&least, &greatest)));
  cudaStream_t stream = nullptr;
  STEMMA_RETURN_IF_ERROR(status_of(
      "cudaStreamCreate", cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest)));
  return CudaStream(stream);
}

Result<CudaEvent> CudaDevice::make_event() {
  STEMMA_RETURN_IF_ERROR(use_in_thread());
  return make_event_with(cudaEventDisableTiming);
}

Result<CudaEvent> CudaDevice::make_timer() {
  STEMMA_RETURN_IF_ERROR(use_in_thread());
  return make_event_with(cudaEventDefault);
}

Result<CudaEvent> CudaDevice::make_sleeper() {
  STEMMA_RETURN_IF_ERROR(use_in_thread());
  return make_event_with(cudaEventDisableTiming | cudaEventBlockingSync);
}

Result<CudaMemory> CudaDevice::allocate(std::size_t size_bytes, CudaStream& stream) {
  if (size_bytes == 0) return CudaMemory();
  const BesideRecordings beside;
  const auto too_much = [&] {
    return Error{ErrorCode::kOutOfMemory,
                 "cannot allocate " + std::to_string(size_bytes) + " bytes of GPU memory", 0};
  };
  if (size_bytes > static_cast<std::size_t>(traits_.memory_bytes)) return too_much();
  void* bytes = nullptr;
  const Status made = status_of(
      "cudaMallocFromPoolAsync",
      cudaMallocFromPoolAsync(&bytes, size_bytes, static_cast<cudaMemPool_t>(reserve_.raw()),
                              native_stream(stream.raw())));
  if (made.ok()) return CudaMemory(bytes, size_bytes, stream.raw());
  return made.error().code == ErrorCode::kOutOfMemory ? too_much() : made.error();
}

Result<PinnedMemory> CudaDevice::allocate_pinned(std::size_t size_bytes) {
  if (size_bytes == 0) return PinnedMemory();
  const BesideRecordings beside;
  STEMMA_RETURN_IF_ERROR(use_in_thread());  // else a context is made on the first device for it
  void* bytes = nullptr;
  STEMMA_RETURN_IF_ERROR(
      status_of("cudaHostAlloc", cudaHostAlloc(&bytes, size_bytes, cudaHostAllocMapped)));
  std::memset(bytes, 0, size_bytes);
  return PinnedMemory(bytes, size_bytes);
}

Status CudaDevice::pin(void* bytes, std::size_t size_bytes) {
  const BesideRecordings beside;
  STEMMA_RETURN_IF_ERROR(use_in_thread());
  return status_of("cudaHostRegister", cudaHostRegister(bytes, size_bytes, cudaHostRegisterMapped));
}

void CudaDevice::unpin(void* bytes) noexcept {
  const BesideRecordings beside;
  ignore_error(status_of("cudaHostUnregister", cudaHostUnregister(bytes)),
               "nothing is left to be told");
}

}  // namespace stemma
