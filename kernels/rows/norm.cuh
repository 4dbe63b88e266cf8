// Helpers shared by the norms and their gradients.
#pragma once

#include "kernels/device/elements.cuh"
#include "kernels/device/occupancy.cuh"
#include "kernels/device/reduce.cuh"

namespace lockstep {

constexpr int kAnyType = -1;

// Bytes of shared memory of a block that are not available for rows: the kernel's static allocation and the driver's
// reserve.
constexpr int64_t kReservedBytes = 1024;

// Returns `known` if the kernel was compiled for one type, else the type given at run time.
template <int known>
__device__ Wide typeOr(Wide fallback) {
  return known == kAnyType ? fallback : static_cast<Wide>(known);
}

__host__ __device__ constexpr int64_t elementBytes(Wide type) { return type == Wide::kF32 ? 4 : 2; }

}  // namespace lockstep
