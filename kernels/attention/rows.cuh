// Rows of tensors, their products, and the work of a warp, for the plain kernels of both passes.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/attention/dot-add.cuh"
#include "kernels/attention/plain.h"
#include "kernels/attention/scores.cuh"
#include "kernels/device/elements.cuh"
#include "kernels/device/reduce.cuh"

namespace lockstep {

// A block of the plain kernels has kRowWarps warps, each of which computes one row at a time.
constexpr int kRowWarps = 4;
constexpr int kRowBlock = kRowWarps * kLanes;

// The number of columns of a result that a lane computes at once: lane l has columns l, l + 32, ... of kColumnsAtOnce.
constexpr int kLaneColumns = 8;
constexpr int kColumnsAtOnce = kLaneColumns * kLanes;

// One row of a tensor with `width` elements.
struct ElementRow {
  const void* data;
  int64_t first;
  int32_t width;

  // Loads elements [from, from + kTerms); elements beyond the width are 0. `aligned` means that the row begins at a multiple of
  // 16 bytes and consists of whole packs of elements.
  template <Wide type>
  __device__ void load(int32_t from, bool aligned, float (&values)[kTerms]) const {
    if (aligned && from + kTerms <= width) {
      float(&low)[kPack] = reinterpret_cast<float(&)[kPack]>(values[0]);
      float(&high)[kPack] = reinterpret_cast<float(&)[kPack]>(values[kPack]);
      loadElements(data, type, first + from, low);
      loadElements(data, type, first + from + kPack, high);
      return;
    }
#pragma unroll
    for (int i = 0; i < kTerms; ++i) {
      values[i] = from + i < width ? loadElement(data, type, first + from + i) : 0.0f;
    }
  }
};

__device__ inline bool isAligned(const ElementRow& row) {
  return row.width % kPack == 0 && reinterpret_cast<uintptr_t>(row.data) % 16 == 0;
}

// Returns the product of two rows of the same width: a chain of the datapath that starts at zero.
template <Wide type>
__device__ inline float multiplyRows(const Datapath& datapath, const ElementRow& a, const ElementRow& b) {
  const bool aligned = isAligned(a) && isAligned(b);
  float sum = 0;
  for (int32_t d = 0; d < a.width; d += kTerms) {
    float x[kTerms];
    float y[kTerms];
    a.template load<type>(d, aligned, x);
    b.template load<type>(d, aligned, y);
    sum = addProducts(datapath, sum, x, y);
  }
  return sum;
}

// The row of query i in a tensor with the rows of q, with `width` elements for each head.
__device__ inline ElementRow queryRow(const AttentionRule& p, const void* data, int32_t width, const Sequence& s,
                                      int32_t head, int32_t i) {
  return {data, (queryRowOf(p, s, i) * p.heads + head) * width, width};
}

// The row of key j in a tensor with the rows of k.
__device__ inline ElementRow keyRow(const AttentionRule& p, const void* data, int32_t width, const Sequence& s,
                                    int32_t keyHead, int32_t j) {
  return {data, (keyRowOf(p, s, j) * p.keyHeads + keyHead) * width, width};
}

// Adds kTerms products to sums[c], for each of this lane's columns from `first` on: factors[n] times element `column` of the row
// rowOf(n). Only rows whose bit of `used` is set are read; the others add nothing.
template <Wide type, typename RowOf>
__device__ inline void addRows(const Datapath& datapath, const float* factors, uint32_t used, int32_t first,
                               int32_t width, RowOf rowOf, float (&sums)[kLaneColumns]) {
  if (used == 0) return;
  float a[kTerms];
  const typename WideOf<type>::Storage* rows[kTerms];
#pragma unroll
  for (int n = 0; n < kTerms; ++n) {
    const bool isUsed = used >> n & 1;
    a[n] = isUsed ? factors[n] : 0.0f;
    rows[n] = nullptr;
    if (!isUsed) continue;
    const ElementRow row = rowOf(n);
    rows[n] = static_cast<const typename WideOf<type>::Storage*>(row.data) + row.first;
  }
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int c = 0; c < kLaneColumns; ++c) {
    const int32_t column = first + c * kLanes + lane;
    if (column >= width) break;
    float b[kTerms];
#pragma unroll
    for (int n = 0; n < kTerms; ++n) b[n] = rows[n] != nullptr ? WideOf<type>::load(rows[n][column]) : 0.0f;
    sums[c] = addProducts(datapath, sums[c], a, b);
  }
}

// Stores this lane's columns of a row, each times `factor`.
template <Wide type>
__device__ inline void storeColumns(void* to, int64_t row, int32_t first, int32_t width,
                                    const float (&values)[kLaneColumns], float factor) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int c = 0; c < kLaneColumns; ++c) {
    const int32_t column = first + c * kLanes + lane;
    if (column < width) storeElement(to, type, row + column, values[c] * factor);
  }
}

// The number of thread blocks for `rows` rows or for the tiles of a list. Each warp computes one row at a time; the distance to
// its next row is the number of warps in the grid.
inline unsigned rowBlocks(int64_t rows, const int32_t* list) {
  constexpr int64_t kMaxBlocks = int64_t{1} << 20;
  constexpr int64_t kListBlocks = 512;
  return static_cast<unsigned>(std::min(ceilDivide(rows, kRowWarps), list != nullptr ? kListBlocks : kMaxBlocks));
}

// Calls body(head, row) in all lanes of a warp, for each of `count` heads and `rows` rows. Heads are numbered over all
// sequences. With a list, calls it only for rows of its tiles. A list is the number of tiles, then tile head * ceil(rows / 64) +
// row / 64 for each.
template <typename Body>
__device__ inline void forEachRow(int64_t count, int32_t rows, const int32_t* list, Body body) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRowWarps;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kRowWarps + threadIdx.x / kLanes;
  if (list == nullptr) {
    for (int64_t index = warp; index < count * rows; index += stride)
      body(index / rows, static_cast<int32_t>(index % rows));
    return;
  }
  const int64_t tiles = ceilDivide(rows, kTileRows);
  const int64_t listed = static_cast<int64_t>(list[0]) * kTileRows;
  for (int64_t index = warp; index < listed; index += stride) {
    const int32_t tile = list[1 + index / kTileRows];
    const auto row = static_cast<int32_t>(tile % tiles * kTileRows + index % kTileRows);
    if (row < rows) body(tile / tiles, row);
  }
}

}  // namespace lockstep
