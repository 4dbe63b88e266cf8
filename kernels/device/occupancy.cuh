// Occupancy and resource limits of the current device. Each thread queries the driver once per kernel and device and
// caches the result.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

namespace lockstep {

// Returns the cached value for `key`. The first call computes it by `ask`.
template <typename Key, typename Value, typename Ask>
Value remember(std::map<Key, Value>& cache, const Key& key, Ask ask) {
  if (const auto entry = cache.find(key); entry != cache.end()) return entry->second;
  return cache[key] = ask();
}

inline int currentDevice() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

inline int attributeOf(int device, cudaDeviceAttr attribute) {
  thread_local std::map<std::tuple<int, cudaDeviceAttr>, int> cache;
  return remember(cache, {device, attribute}, [&] {
    int value = 0;
    cudaDeviceGetAttribute(&value, attribute, device);
    return value;
  });
}

// The limits of one block on the current device.
struct DeviceLimits {
  int64_t sharedBytes;
  bool clusters;
};

inline DeviceLimits limitsOfDevice() {
  const int device = currentDevice();
  return {attributeOf(device, cudaDevAttrMaxSharedMemoryPerBlockOptin),
          attributeOf(device, cudaDevAttrComputeCapabilityMajor) >= 9};
}

// The number of multiprocessors of the current device; 1 if the query fails.
inline int multiprocessors() { return std::max(attributeOf(currentDevice(), cudaDevAttrMultiProcessorCount), 1); }

// Sets the limit on dynamic shared memory of `kernel` to the device's maximum per block, less the static shared memory
// of the kernel. The limit belongs to the process. Each thread sets it once per device, always to this value: limits
// that differ by launch would race with launches of other threads.
template <typename Kernel>
cudaError_t allowShared(Kernel kernel) {
  thread_local std::map<std::tuple<const void*, int>, cudaError_t> cache;
  const int device = currentDevice();
  return remember(cache, {reinterpret_cast<const void*>(kernel), device}, [&] {
    cudaFuncAttributes attributes{};
    if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel); error != cudaSuccess) return error;
    const int maxShared =
        attributeOf(device, cudaDevAttrMaxSharedMemoryPerBlockOptin) - static_cast<int>(attributes.sharedSizeBytes);
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, maxShared);
  });
}

// Returns how many blocks of `kernel`, each with `bytes` of dynamic shared memory, are resident on the device at once.
// It first raises the kernel's shared-memory limit (allowShared).
template <typename Kernel>
int64_t residentBlocks(Kernel kernel, int64_t threads, int64_t bytes) {
  thread_local std::map<std::tuple<const void*, int, int64_t, int64_t>, int64_t> cache;
  const auto key = std::tuple{reinterpret_cast<const void*>(kernel), currentDevice(), threads, bytes};
  return remember(cache, key, [&] {
    int blocks = 1;
    cudaError_t error = allowShared(kernel);
    if (error == cudaSuccess) error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error == cudaSuccess) {
      error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), bytes);
    }
    // the launch that follows reports the error
    if (error != cudaSuccess) cudaGetLastError();
    return int64_t{multiprocessors()} * std::max(blocks, 1);
  });
}

// Returns how many clusters of `kernel` with this block size and shared memory are resident on the device at once. The
// grid does not matter.
template <typename Kernel>
int64_t clustersOf(Kernel kernel, int64_t clusterSize, const cudaLaunchConfig_t& config) {
  thread_local std::map<std::tuple<const void*, int, int64_t, unsigned, size_t>, int> cache;
  const auto key = std::tuple{reinterpret_cast<const void*>(kernel), currentDevice(), clusterSize, config.blockDim.x,
                              config.dynamicSmemBytes};
  return remember(cache, key, [&] {
    int clusters = 1;
    // if the query fails, assume one cluster; the launch then reports the error
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess) cudaGetLastError();
    return clusters;
  });
}

}  // namespace lockstep
