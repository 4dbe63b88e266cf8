// Memory that processes share, in place of GPUs that access each other's memory: cudaMalloc's allocations of 1 MiB and more, and
// registered pages. A wait for a value blocks the host, because work is done when it is enqueued. The environment sets the bytes
// that can be allocated so (STAND_IN_EXPORTED, default 1 GiB), and whether other processes can map them (STAND_IN_MAPS, default
// 1). At its end the process prints on stderr how many bytes it copied to others, if it copied any.
#include "conformance/tests/stand-in/peers.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "conformance/tests/stand-in/order.h"
#include "conformance/tests/stand-in/runtime.h"

namespace {

using standin::setting;
using standin::told;

constexpr size_t kShared = size_t{1} << 20;

struct Shared {
  int file;
  size_t bytes;
};

// The contents of an IPC handle.
struct Handle {
  int process;
  int file;
  size_t bytes;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

std::mutex mutex;
std::map<uint64_t, Shared> own;
std::map<uint64_t, size_t> mapped;

uint64_t left = setting("STAND_IN_EXPORTED", uint64_t{1} << 30);

struct Told {
  std::atomic<uint64_t> toPeers = 0;
  std::atomic<uint64_t> within = 0;
  ~Told() {
    if (toPeers == 0) return;
    const auto tell = [](const std::atomic<uint64_t>& bytes, const char* where) {
      if (bytes > 0) std::fprintf(stderr, "stand-in: copied %llu bytes %s\n", (unsigned long long)bytes.load(), where);
    };
    tell(toPeers, "to peers");
    tell(within, "within a GPU");
  }
} copied;

uint64_t addressOf(const void* data) { return reinterpret_cast<uint64_t>(data); }

CUresult writeValue(CUstream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) standin::fault("a value is written without a barrier");
  std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(address)).store(value);
  return CUDA_SUCCESS;
}

CUresult waitValue(CUstream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) standin::fault("a value is waited for in another way");
  const std::atomic_ref<uint32_t> found(*reinterpret_cast<uint32_t*>(address));
  while (static_cast<int32_t>(found.load() - value) < 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  return CUDA_SUCCESS;
}

}  // namespace

namespace standin {

void copiedTo(const void* to, size_t bytes) {
  const std::lock_guard lock(mutex);
  const auto after = mapped.upper_bound(addressOf(to));
  const bool isPeers = after != mapped.begin() && addressOf(to) - std::prev(after)->first < std::prev(after)->second;
  if (isPeers && addressOf(to) - std::prev(after)->first + bytes > std::prev(after)->second) {
    fault("a copy goes beyond the memory of another process");
  }
  (isPeers ? copied.toPeers : copied.within) += bytes;
}

}  // namespace standin

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (bytes < kShared) return *data = std::malloc(bytes), *data ? cudaSuccess : told(cudaErrorMemoryAllocation);
  const std::lock_guard lock(mutex);
  if (bytes > left) return told(cudaErrorMemoryAllocation);
  const int file = memfd_create("stand-in", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return told(cudaErrorMemoryAllocation);
  *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (*data == MAP_FAILED) return told(cudaErrorMemoryAllocation);
  left -= bytes;
  own[addressOf(*data)] = {file, bytes};
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  const std::lock_guard lock(mutex);
  const auto found = own.find(addressOf(data));
  if (found == own.end()) return std::free(data), cudaSuccess;
  left += found->second.bytes;
  munmap(data, found->second.bytes);
  close(found->second.file);
  own.erase(found);
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data) {
  const std::lock_guard lock(mutex);
  const auto found = own.find(addressOf(data));
  if (found == own.end()) return told(cudaErrorInvalidValue);
  const Handle made{getpid(), found->second.file, found->second.bytes};
  *handle = {};
  std::memcpy(handle, &made, sizeof(made));
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned flags) {
  if (flags != cudaIpcMemLazyEnablePeerAccess) standin::fault("memory is mapped without access to its GPU");
  Handle from;
  std::memcpy(&from, &handle, sizeof(from));
  if (from.process == getpid() || setting("STAND_IN_MAPS", 1) == 0) return told(cudaErrorInvalidValue);
  const std::string path = "/proc/" + std::to_string(from.process) + "/fd/" + std::to_string(from.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return told(cudaErrorInvalidValue);
  *data = mmap(nullptr, from.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (*data == MAP_FAILED) return told(cudaErrorInvalidValue);
  const std::lock_guard lock(mutex);
  mapped[addressOf(*data)] = from.bytes;
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* data) {
  const std::lock_guard lock(mutex);
  const auto found = mapped.find(addressOf(data));
  if (found == mapped.end()) standin::fault("memory is unmapped that is not mapped");
  munmap(data, found->second);
  mapped.erase(found);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void*, size_t, unsigned flags) {
  return flags == cudaHostRegisterMapped ? cudaSuccess : told(cudaErrorInvalidValue);
}
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaHostGetDevicePointer(void** onDevice, void* host, unsigned) { return *onDevice = host, cudaSuccess; }

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* how) {
  *found = std::strcmp(name, "cuStreamWriteValue32") == 0  ? reinterpret_cast<void*>(writeValue)
           : std::strcmp(name, "cuStreamWaitValue32") == 0 ? reinterpret_cast<void*>(waitValue)
                                                           : nullptr;
  *how = *found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// Work is done when it is enqueued.
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }

}  // extern "C"
