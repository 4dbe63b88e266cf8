// What the norms and their gradients share: what a device has room for.
#pragma once

#include "kernels/elements.cuh"
#include "kernels/reduce.cuh"

namespace lockstep {

constexpr int kAnyType = -1;

// Shared memory that a block's rows do not get of what there is: what its kernel declares, and the driver's own.
constexpr int64_t kReservedBytes = 1024;

// `known` where a kernel was compiled for one type, else the type given.
template <int known>
__device__ Wide typeOr(Wide given) {
  return known == kAnyType ? given : static_cast<Wide>(known);
}

__host__ __device__ constexpr int64_t elementBytes(Wide type) { return type == Wide::kF32 ? 4 : 2; }

// What one block of the device in use may have.
struct DeviceLimits {
  int64_t sharedBytes;
  bool clusters;
};

inline DeviceLimits limitsOfDevice() {
  int device = 0;
  int bytes = 0;
  int major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return {bytes, major >= 9};
}

struct Residency {
  int multiprocessors;
  int64_t blocks;
};

// Lets blocks of `kernel` take `bytes` of shared memory; how many of them the device holds at once.
template <typename Kernel>
Residency residencyOf(Kernel kernel, int64_t threads, int64_t bytes) {
  int device = 0;
  int multiprocessors = 1;
  int blocks = 1;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), bytes);
  return {multiprocessors, static_cast<int64_t>(multiprocessors) * blocks};
}

}  // namespace lockstep
