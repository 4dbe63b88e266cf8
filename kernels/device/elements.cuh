// Loads consecutive elements of a wide type as f32 and stores them: eight elements by 16-byte accesses if rows are
// aligned to 16 bytes, else one element.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/device/pair.cuh"

namespace lockstep {

// The number of elements in a pack. A thread loads or stores a whole pack at once.
constexpr int kPack = 8;

// Rounds two values to f16, to nearest even. `low` is in the low half of the result.
__device__ inline uint32_t halfPair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline float loadElement(const void* source, Wide type, int64_t index) {
  if (type == Wide::kF32) return static_cast<const float*>(source)[index];
  const uint16_t bits = static_cast<const uint16_t*>(source)[index];
  return type == Wide::kBf16 ? bf16ToFloat(bits) : halfToFloat(bits);
}

__device__ inline void storeElement(void* target, Wide type, int64_t index, float value) {
  if (type == Wide::kF32) {
    static_cast<float*>(target)[index] = value;
  } else {
    static_cast<uint16_t*>(target)[index] = type == Wide::kBf16 ? floatToBf16(value) : floatToHalf(value);
  }
}

// `value` rounded to a wide type, as f32.
__device__ inline float rounded(Wide type, float value) {
  if (type == Wide::kF32) return value;
  return type == Wide::kBf16 ? bf16ToFloat(floatToBf16(value)) : halfToFloat(floatToHalf(value));
}

// Loads elements [index, index + width) of an array; `width` is 1 or kPack, and `index` is a multiple of it.
template <int width>
__device__ inline void loadElements(const void* source, Wide type, int64_t index, float (&values)[width]) {
  if constexpr (width == 1) {
    values[0] = loadElement(source, type, index);
  } else if (type == Wide::kF32) {
    const float4* quads = reinterpret_cast<const float4*>(static_cast<const float*>(source) + index);
    const float4 low = quads[0];
    const float4 high = quads[1];
    values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
    values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
  } else {
    const Bytes16 bits = *reinterpret_cast<const Bytes16*>(static_cast<const uint16_t*>(source) + index);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = bits.words[i];
      const bool bf16 = type == Wide::kBf16;
      values[2 * i] = bf16 ? __uint_as_float(pair << 16) : halfToFloat(static_cast<uint16_t>(pair));
      values[2 * i + 1] = bf16 ? __uint_as_float(pair & 0xffff0000u) : halfToFloat(static_cast<uint16_t>(pair >> 16));
    }
  }
}

// Stores 16 bytes in one access. The compiler splits a plain store if stores of other types are next to it.
__device__ inline void storeBytes16(void* target, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(target), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Stores the values, each rounded once.
template <int width>
__device__ inline void storeElements(void* target, Wide type, int64_t index, const float (&values)[width]) {
  if constexpr (width == 1) {
    storeElement(target, type, index, values[0]);
  } else if (type == Wide::kF32) {
    uint32_t words[width];
#pragma unroll
    for (int i = 0; i < width; ++i) words[i] = __float_as_uint(values[i]);
    float* first = static_cast<float*>(target) + index;
    storeBytes16(first, words[0], words[1], words[2], words[3]);
    storeBytes16(first + 4, words[4], words[5], words[6], words[7]);
  } else {
    uint32_t pairs[width / 2];
#pragma unroll
    for (int i = 0; i < width / 2; ++i) {
      const float low = values[2 * i];
      const float high = values[2 * i + 1];
      pairs[i] = type == Wide::kBf16 ? bf16Pair(low, high) : halfPair(low, high);
    }
    storeBytes16(static_cast<uint16_t*>(target) + index, pairs[0], pairs[1], pairs[2], pairs[3]);
  }
}

// Launch configuration for a matrix with `rows` rows of `packs` packs (of kPack elements): x runs over the packs of a
// row and y over the rows. Kernels loop over rows with stride gridDim.y * blockDim.y.
constexpr unsigned kRowThreads = 256;

struct RowGrid {
  dim3 blocks;
  dim3 threads;
};

inline RowGrid rowGrid(int64_t rows, int64_t packs) {
  unsigned across = 1;
  while (across < kRowThreads && across < packs) across *= 2;
  const unsigned down = kRowThreads / across;
  const auto blocks = static_cast<unsigned>(ceilDivide(packs, across));
  return {dim3(blocks, static_cast<unsigned>(std::min<int64_t>(ceilDivide(rows, down), kMaxGridY))),
          dim3(across, down)};
}

// Calls `launch` with a grid for rows of `columns` elements, and a tag whose `value` is the number of elements of a thread.
template <typename Launch>
cudaError_t withRows(int64_t rows, int64_t columns, Launch launch) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  if (columns % kPack == 0) {
    launch(rowGrid(rows, columns / kPack), std::integral_constant<int, kPack>{});
  } else {
    launch(rowGrid(rows, columns), std::integral_constant<int, 1>{});
  }
  return cudaGetLastError();
}

}  // namespace lockstep
