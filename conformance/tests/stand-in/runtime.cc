// A stand-in for the CUDA runtime without a GPU. Device memory is host memory, and work is done when it is enqueued.
// The environment sets the device memory (STAND_IN_BYTES, default 1 GiB), the host memory that can be pinned
// (STAND_IN_PINNED, default 320 MiB), and the milliseconds that a wait takes (STAND_IN_DELAY_MS, default 0). An event
// is not ready at its first query. An error that is not fetched ends the process at the next call that enters the
// device.
#include <cuda_runtime.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "conformance/tests/stand-in/peers.h"
#include "conformance/tests/stand-in/runtime.h"
#include "conformance/tests/stand-in/touch.h"

namespace {

using standin::setting;
using standin::told;

thread_local cudaError_t last = cudaSuccess;

void wait() {
  static const uint64_t delay = setting("STAND_IN_DELAY_MS", 0);
  if (delay > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay));
}

struct Pool {
  std::map<void*, uint64_t> blocks;
  uint64_t used = 0;
  // Bytes that were freed but stay reserved for this pool, so that other pools cannot use them.
  uint64_t kept = 0;
};

struct EventState {
  bool asked = false;
};

// The stream that is being captured. Its work is done at once, and is not repeated by a replay.
cudaStream_t captured = nullptr;

void requireNotCaptured(cudaStream_t stream, const char* what) {
  if (stream != nullptr && stream == captured) standin::fault(what);
}

std::mutex mutex;
std::map<void*, Pool*> owners;
uint64_t left = setting("STAND_IN_BYTES", uint64_t{1} << 30);

std::map<void*, uint64_t> pinned;
uint64_t pinnable = setting("STAND_IN_PINNED", uint64_t{320} << 20);

Pool* poolOf(cudaMemPool_t pool) { return reinterpret_cast<Pool*>(pool); }

}  // namespace

namespace standin {

cudaError_t told(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  return error;
}

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace standin

extern "C" {

const char* cudaGetErrorName(cudaError_t error) { return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError"; }
const char* cudaGetErrorString(cudaError_t) { return "from the stand-in"; }
cudaError_t cudaGetLastError() {
  const cudaError_t error = last;
  last = cudaSuccess;
  return error;
}

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaSetDevice(int) {
  if (last != cudaSuccess) standin::fault("an error was left for the next call");
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSetDevice(0); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "stand-in");
  // each process has a GPU of its own
  const int own = getpid();
  std::memcpy(properties->uuid.bytes, &own, sizeof(own));
  const int capability = static_cast<int>(setting("STAND_IN_CAPABILITY", 90));
  properties->major = capability / 10;
  properties->minor = capability % 10;
  properties->multiProcessorCount = 1;
  properties->totalGlobalMem = setting("STAND_IN_BYTES", uint64_t{1} << 30);
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  if (captured) standin::fault("the device was waited for during a capture");
  standin::hostWaitsForAll();
  return wait(), cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete reinterpret_cast<char*>(stream), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  requireNotCaptured(stream, "a stream that is captured was waited for");
  standin::hostWaits(stream);
  return wait(), cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (captured) standin::fault("two streams are captured");
  return captured = stream, cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (captured != stream) standin::fault("a stream was not captured");
  captured = nullptr;
  *graph = reinterpret_cast<cudaGraph_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* work, cudaGraph_t, unsigned long long) {
  *work = reinterpret_cast<cudaGraphExec_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete reinterpret_cast<char*>(graph), cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t work) { return delete reinterpret_cast<char*>(work), cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t work, cudaStream_t) {
  return *reinterpret_cast<volatile char*>(work) = 0, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return standin::waits(stream, event), cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = reinterpret_cast<cudaEvent_t>(new EventState);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  standin::forgets(event);
  return delete reinterpret_cast<EventState*>(event), cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  requireNotCaptured(stream, "an event was recorded in a capture");
  reinterpret_cast<EventState*>(event)->asked = false;
  standin::records(event, stream);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  bool& asked = reinterpret_cast<EventState*>(event)->asked;
  if (asked) return standin::hostWaits(event), cudaSuccess;
  asked = true;
  return told(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return standin::hostWaits(event), wait(), cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) { return *milliseconds = 1, cudaSuccess; }

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  const std::lock_guard lock(mutex);
  if (bytes > pinnable || !(*data = std::malloc(bytes))) return told(cudaErrorMemoryAllocation);
  pinnable -= bytes;
  pinned[*data] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  const std::lock_guard lock(mutex);
  pinnable += pinned.extract(data).mapped();
  return std::free(data), cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = reinterpret_cast<cudaMemPool_t>(new Pool);
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  const std::lock_guard lock(mutex);
  left += std::exchange(poolOf(pool)->kept, 0);
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  if (poolOf(pool)->used != 0) standin::fault("a pool was destroyed with memory in use");
  cudaMemPoolTrimTo(pool, 0);
  delete poolOf(pool);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* value) {
  const std::lock_guard lock(mutex);
  *static_cast<uint64_t*>(value) = poolOf(pool)->used + poolOf(pool)->kept;
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t handle, cudaStream_t stream) {
  requireNotCaptured(stream, "memory was allocated in a capture");
  const std::lock_guard lock(mutex);
  Pool* pool = poolOf(handle);
  const uint64_t more = bytes > pool->kept ? bytes - pool->kept : 0;
  if (more > left || posix_memalign(data, 256, bytes) != 0) return told(cudaErrorMemoryAllocation);
  left -= more;
  pool->kept -= bytes - more;
  pool->used += bytes;
  pool->blocks[*data] = bytes;
  owners[*data] = pool;
  std::memset(*data, 0xa5, bytes);
  standin::allocated(*data, bytes, stream);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  requireNotCaptured(stream, "memory was freed in a capture");
  const std::lock_guard lock(mutex);
  const auto owner = owners.find(data);
  if (owner == owners.end()) standin::fault("memory was freed that is not allocated");
  standin::freed(data, stream);
  const uint64_t bytes = owner->second->blocks.extract(data).mapped();
  owner->second->used -= bytes;
  owner->second->kept += bytes;
  owners.erase(owner);
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(mutex);
  *free = left;
  *total = setting("STAND_IN_BYTES", uint64_t{1} << 30);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  standin::on(stream);
  standin::accesses(from, standin::Access::kRead);
  standin::accesses(to, standin::Access::kWrite);
  if (kind == cudaMemcpyDeviceToDevice) standin::copiedTo(to, bytes);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  standin::on(stream);
  standin::accesses(to, standin::Access::kWrite);
  std::memset(to, value, bytes);
  return cudaSuccess;
}

}  // extern "C"
