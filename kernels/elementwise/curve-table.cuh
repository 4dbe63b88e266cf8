// Activations and derivatives ("curves") of bf16 inputs, read from a table in shared memory. Each block fills its table
// by evaluating the curve. A table pays off for large inputs, because one evaluation in f64 costs several times as much
// as reading and writing an element.
#pragma once

#include "kernels/device/elements.cuh"

namespace lockstep {

// The table covers magnitudes in [2^-16, 2^8) of both signs. The negative values are in its second half.
constexpr uint32_t kTableFirst = (127 - 16) << 7;
constexpr uint32_t kTableMagnitudes = 24 << 7;
constexpr uint32_t kTableEntries = 2 * kTableMagnitudes;

// The number of threads per block of a kernel with a table, which runs one block per multiprocessor.
constexpr unsigned kTableThreads = 1024;
// The number of elements from which filling the table pays off.
constexpr int64_t kLeastForTable = 1 << 22;

// Fills a table. All threads of the block must call it and synchronise afterwards.
template <typename Curve>
__device__ void fillTable(float* table, Curve curve) {
  const uint32_t threads = blockDim.x * blockDim.y;
  for (uint32_t i = threadIdx.y * blockDim.x + threadIdx.x; i < kTableEntries; i += threads) {
    const uint32_t sign = i / kTableMagnitudes << 31;
    table[i] = curve(__uint_as_float(sign | (kTableFirst + i % kTableMagnitudes) << 16));
  }
}

// Returns the table index of a bf16 value. Clears `inside` if the table does not cover the value.
__device__ inline uint32_t tableEntry(float x, bool& inside) {
  const uint32_t bits = __float_as_uint(x) >> 16;
  const uint32_t magnitude = (bits & 0x7fff) - kTableFirst;
  inside = inside && magnitude < kTableMagnitudes;
  return magnitude + (bits >> 15) * kTableMagnitudes;
}

// Computes the table indices of bf16 values. Returns whether the table covers all of them.
__device__ inline bool tableEntries(const float (&x)[kPack], uint32_t (&entries)[kPack]) {
  bool inside = true;
#pragma unroll
  for (int i = 0; i < kPack; ++i) entries[i] = tableEntry(x[i], inside);
  return inside;
}

// results[i] = curve(x[i]), for values x that bf16 represents.
template <typename Curve>
__device__ void lookUp(const float* table, const float (&x)[kPack], float (&results)[kPack], Curve curve) {
  uint32_t entries[kPack];
  if (tableEntries(x, entries)) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) results[i] = table[entries[i]];
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) results[i] = curve(x[i]);
  }
}

// Whether the activation is evaluated in f64, and so is expensive enough for a table.
constexpr bool inDouble(Activation kind) { return kind != Activation::kRelu && kind != Activation::kSrelu; }

// The grid of a kernel with a table: one block per multiprocessor.
inline unsigned tableBlocks() {
  int device = 0;
  int multiprocessors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  return static_cast<unsigned>(multiprocessors);
}

}  // namespace lockstep
