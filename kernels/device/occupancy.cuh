// What a device gives the blocks of a kernel. The driver is asked once for each kernel and device by a thread, which remembers.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

namespace lockstep {

// The value of `key`; `ask` gives one that is not known.
template <typename Key, typename Value, typename Ask>
Value remember(std::map<Key, Value>& known, const Key& key, Ask ask) {
  if (const auto found = known.find(key); found != known.end()) return found->second;
  return known[key] = ask();
}

inline int currentDevice() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

inline int attributeOf(int device, cudaDeviceAttr attribute) {
  thread_local std::map<std::tuple<int, cudaDeviceAttr>, int> known;
  return remember(known, {device, attribute}, [&] {
    int value = 0;
    cudaDeviceGetAttribute(&value, attribute, device);
    return value;
  });
}

// What one block of the device in use may have.
struct DeviceLimits {
  int64_t sharedBytes;
  bool clusters;
};

inline DeviceLimits limitsOfDevice() {
  const int device = currentDevice();
  return {attributeOf(device, cudaDevAttrMaxSharedMemoryPerBlockOptin),
          attributeOf(device, cudaDevAttrComputeCapabilityMajor) >= 9};
}

// Of the device in use; one where it cannot say.
inline int multiprocessors() { return std::max(attributeOf(currentDevice(), cudaDevAttrMultiProcessorCount), 1); }

// Lets blocks of `kernel` take all the shared memory that the device has for one. The limit is of the process: one that followed
// each launch would be another thread's as well.
template <typename Kernel>
cudaError_t allowShared(Kernel kernel) {
  thread_local std::map<std::tuple<const void*, int>, cudaError_t> known;
  const int device = currentDevice();
  return remember(known, {reinterpret_cast<const void*>(kernel), device}, [&] {
    cudaFuncAttributes own{};
    if (const cudaError_t error = cudaFuncGetAttributes(&own, kernel); error != cudaSuccess) return error;
    const int most =
        attributeOf(device, cudaDevAttrMaxSharedMemoryPerBlockOptin) - static_cast<int>(own.sharedSizeBytes);
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  });
}

// How many blocks of `kernel`, of `bytes` of shared memory each, the device holds at once; lets them take so much.
template <typename Kernel>
int64_t residentBlocks(Kernel kernel, int64_t threads, int64_t bytes) {
  thread_local std::map<std::tuple<const void*, int, int64_t, int64_t>, int64_t> known;
  const auto key = std::tuple{reinterpret_cast<const void*>(kernel), currentDevice(), threads, bytes};
  return remember(known, key, [&] {
    int blocks = 1;
    cudaError_t error = allowShared(kernel);
    if (error == cudaSuccess) error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error == cudaSuccess) {
      error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), bytes);
    }
    // the launch that follows says what is wrong
    if (error != cudaSuccess) cudaGetLastError();
    return int64_t{multiprocessors()} * std::max(blocks, 1);
  });
}

// How many clusters of `kernel` the device holds at once, for a launch as configured, whatever its grid.
template <typename Kernel>
int64_t clustersOf(Kernel kernel, int64_t parts, const cudaLaunchConfig_t& config) {
  thread_local std::map<std::tuple<const void*, int, int64_t, unsigned, size_t>, int> known;
  const auto key = std::tuple{reinterpret_cast<const void*>(kernel), currentDevice(), parts, config.blockDim.x,
                              config.dynamicSmemBytes};
  return remember(known, key, [&] {
    int clusters = 1;
    // where it cannot say, there is room for one, or the launch says why not
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess) cudaGetLastError();
    return clusters;
  });
}

}  // namespace lockstep
