// Curves of bf16 numbers from a table in shared memory, filled by the function that it stands for: one evaluation in
// f64 costs several times what reading and writing its numbers does.
#pragma once

#include "kernels/device/elements.cuh"

namespace lockstep {

// The numbers of both signs with magnitudes in [2^-16, 2^8), those below 0 last.
constexpr uint32_t kTableFirst = (127 - 16) << 7;
constexpr uint32_t kTableMagnitudes = 24 << 7;
constexpr uint32_t kTableEntries = 2 * kTableMagnitudes;

// Threads of a block, the only one of a multiprocessor, and numbers from which filling its table pays.
constexpr unsigned kTableThreads = 1024;
constexpr int64_t kLeastForTable = 1 << 22;

// Called by all threads of a block, which then synchronise.
template <typename Curve>
__device__ void fillTable(float* table, Curve curve) {
  const uint32_t threads = blockDim.x * blockDim.y;
  for (uint32_t i = threadIdx.y * blockDim.x + threadIdx.x; i < kTableEntries; i += threads) {
    const uint32_t sign = i / kTableMagnitudes << 31;
    table[i] = curve(__uint_as_float(sign | (kTableFirst + i % kTableMagnitudes) << 16));
  }
}

// The entry of a number; `inside` is cleared where there is none.
__device__ inline uint32_t tableEntry(float x, bool& inside) {
  const uint32_t bits = __float_as_uint(x) >> 16;
  const uint32_t magnitude = (bits & 0x7fff) - kTableFirst;
  inside = inside && magnitude < kTableMagnitudes;
  return magnitude + (bits >> 15) * kTableMagnitudes;
}

// results[i] = curve(x[i]) for numbers of bf16.
template <typename Curve>
__device__ void lookUp(const float* table, const float (&x)[kPack], float (&results)[kPack], Curve curve) {
  uint32_t entries[kPack];
  bool inside = true;
#pragma unroll
  for (int i = 0; i < kPack; ++i) entries[i] = tableEntry(x[i], inside);
  if (inside) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) results[i] = table[entries[i]];
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) results[i] = curve(x[i]);
  }
}

// Whether a curve is evaluated in f64.
constexpr bool inDouble(Activation kind) { return kind != Activation::kRelu && kind != Activation::kSrelu; }

// A block for each multiprocessor.
inline unsigned tableBlocks() {
  int device = 0;
  int multiprocessors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  return static_cast<unsigned>(multiprocessors);
}

}  // namespace lockstep
