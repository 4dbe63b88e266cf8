// The epilogue of a matrix product. A block has 32 threads along the columns and 8 along the rows. Blocks loop over the
// rows with the stride of the grid.
#include "kernels/gemm/epilogue.h"

#include <algorithm>

#include "kernels/core/minifloat.cuh"
#include "kernels/device/device.cuh"
#include "kernels/gemm/factors.cuh"

namespace lockstep {

namespace {

constexpr int kLanes = 32;
constexpr int kRows = 8;
// The number of blocks to launch, enough to fill a GPU several times.
constexpr int64_t kBlocks = 4096;

// As combine, for a sum that has been multiplied by the scales of its row and column. The result does not depend on split-K. With
// alpha 1 and beta 0 the result is the sum.
__device__ inline float combineLined(float sum, float alpha, float c, float beta) {
  return beta == 0 && alpha == 1 ? sum : combine(sum, alpha, c, beta, false);
}

__device__ inline float widen(uint32_t bits, Wide type) {
  return type == Wide::kBf16 ? bf16ToFloat(static_cast<uint16_t>(bits)) : halfToFloat(static_cast<uint16_t>(bits));
}

// Loads elements [index, index + kCount) of an array of a wide type. If kCount is 4, `index` is a multiple of 4.
template <int kCount>
__device__ inline void loadValues(const void* data, Wide type, int64_t index, float (&values)[kCount]) {
  if constexpr (kCount == 1) {
    values[0] = type == Wide::kF32 ? static_cast<const float*>(data)[index]
                                   : widen(static_cast<const uint16_t*>(data)[index], type);
  } else if (type == Wide::kF32) {
    const float4 four = *reinterpret_cast<const float4*>(static_cast<const float*>(data) + index);
    values[0] = four.x;
    values[1] = four.y;
    values[2] = four.z;
    values[3] = four.w;
  } else {
    const uint2 four = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(data) + index);
    values[0] = widen(four.x & 0xffff, type);
    values[1] = widen(four.x >> 16, type);
    values[2] = widen(four.y & 0xffff, type);
    values[3] = widen(four.y >> 16, type);
  }
}

// Returns the code of x in the 16-bit format given by the format word `word`, or the code of x * scale in an 8-bit
// format.
__device__ inline uint32_t codeOf(float x, uint32_t word, float scale) {
  if (word == format::kBf16) return floatToBf16(x);
  if (word == format::kF16) return floatToHalf(x);
  const float scaled = __fmul_rn(x, scale);
  return word == format::kE4m3 ? encodeNearest<format::kE4m3>(scaled) : encodeNearest<format::kE5m2>(scaled);
}

// Rounds x to a 16-bit result type. Results of another width are not rounded before c is added.
__device__ inline float roundedAs(float x, uint32_t word) {
  if (word == format::kBf16) return bf16ToFloat(floatToBf16(x));
  return word == format::kF16 ? halfToFloat(floatToHalf(x)) : x;
}

// Returns a result element from p, under line amaxes (docs/numerics.md §5.10). `both`: both operands have line amaxes.
__device__ inline float withAmaxes(float p, float ofRow, float ofColumn, bool both, float bias, float c,
                                   const GemmEpilogueParams& params) {
  float x = both ? __fmul_rn(__fmul_rn(p, ofRow), ofColumn) : __fmul_rn(p, __fmul_rn(ofRow, ofColumn));
  if (params.bias) x = __fadd_rn(x, bias);
  return params.beta == 0 ? x : __fadd_rn(__fmul_rn(params.beta, c), roundedAs(x, params.word));
}

template <int kCount>
__device__ inline void storeValues(const GemmEpilogueParams& p, int64_t index, const float (&values)[kCount]) {
  if (p.word == 0) {
    float* to = static_cast<float*>(p.out) + index;
    if constexpr (kCount == 1) {
      *to = values[0];
    } else {
      *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
    }
    return;
  }
  uint32_t codes[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) codes[i] = codeOf(values[i], p.word, p.outScale);
  if (storageBits(p.word) == 8) {
    uint8_t* to = static_cast<uint8_t*>(p.out) + index;
    if constexpr (kCount == 1) {
      *to = static_cast<uint8_t>(codes[0]);
    } else {
      *reinterpret_cast<uint32_t*>(to) = codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
    }
  } else {
    uint16_t* to = static_cast<uint16_t*>(p.out) + index;
    if constexpr (kCount == 1) {
      *to = static_cast<uint16_t>(codes[0]);
    } else {
      *reinterpret_cast<uint2*>(to) = make_uint2(codes[0] | codes[1] << 16, codes[2] | codes[3] << 16);
    }
  }
}

// kCount is the number of columns per thread: 4 if the rows of all arrays start at multiples of 4 elements, else 1.
// `out` may alias c or the sums, so a thread reads its elements before it writes them.
template <int kCount>
__global__ void __launch_bounds__((kLanes * kRows)) gemmEpilogueKernel(const GemmEpilogueParams p) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x) * kCount;
  const float alpha = alphaOf(p.factors);
  uint32_t amax = 0;
  if (column < p.columns) {
    const bool lined = p.linesW || p.linesX;
    const float s = scaleOf(p.factors);
    float ofColumns[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      ofColumns[i] = valueAt(p.linesW ? p.factors.scaleW + column + i : p.factors.scaleW);
    const bool amaxes = p.lineAmaxesW || p.lineAmaxesX;
    const bool both = p.lineAmaxesW && p.lineAmaxesX && p.rows > 1 && p.columns > 1;
    const float beta = amaxes ? 0 : p.beta;
    float amaxesOfColumns[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) amaxesOfColumns[i] = valueAt(p.lineAmaxesW ? p.amaxW + column + i : p.amaxW);
    float bias[kCount] = {};
    if (p.bias) loadValues(p.bias, p.biasType, column, bias);
    const int64_t stride = static_cast<int64_t>(gridDim.y) * kRows;
    for (int64_t row = static_cast<int64_t>(blockIdx.y) * kRows + threadIdx.y; row < p.rows; row += stride) {
      float sums[kCount] = {};
      float c[kCount] = {};
      const int64_t index = row * p.columns + column;
      if (p.sums) {
        const int64_t line = p.sumsSkipped == 0 ? row : row + row / p.itemRows * p.sumsSkipped;
        loadValues(p.sums, Wide::kF32, line * p.sumsPitch + column, sums);
      }
      if (p.beta != 0) loadValues(p.c, p.cType, index, c);
      const float ofRow = lined ? valueAt(p.linesX ? p.factors.scaleX + row : p.factors.scaleX) : 1;
      const float amaxOfRow = amaxes ? valueAt(p.lineAmaxesX ? p.amaxX + row : p.amaxX) : 1;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        float x = lined ? combineLined(__fmul_rn(__fmul_rn(sums[i], ofColumns[i]), ofRow), alpha, c[i], beta)
                        : combine(sums[i], s, c[i], beta, p.split);
        if (amaxes) {
          x = withAmaxes(x, amaxOfRow, amaxesOfColumns[i], both, bias[i], c[i], p);
        } else if (p.bias) {
          x = __fadd_rn(x, bias[i]);
        }
        if (x == x) amax = max(amax, bitsOf(x) & 0x7fffffffu);
        sums[i] = x;
      }
      storeValues(p, index, sums);
    }
  }
  if (!p.amax) return;
  amax = __reduce_max_sync(kFullMask, amax);
  // The amax only grows. Hence no atomic is needed if the stored value is already at least as large.
  unsigned* largest = reinterpret_cast<unsigned*>(p.amax);
  if (threadIdx.x == 0 && amax > *static_cast<volatile unsigned*>(largest)) atomicMax(largest, amax);
}

__global__ void gemmAlphaKernel(const GemmAlphaParams p) {
  p.out[0] = scaleOf(p.factors);
  p.out[1] = p.beta;
}

template <int kCount>
void launchRows(const GemmEpilogueParams& p, cudaStream_t stream) {
  const int64_t across = ceilDivide(p.columns, kLanes * kCount);
  const int64_t down = std::clamp<int64_t>(ceilDivide(kBlocks, across), 1, ceilDivide(p.rows, kRows));
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(std::min<int64_t>(down, kMaxGridY)));
  gemmEpilogueKernel<kCount><<<grid, dim3(kLanes, kRows), 0, stream>>>(p);
}

}  // namespace

cudaError_t launchGemmEpilogue(const GemmEpilogueParams& p, cudaStream_t stream) {
  if (p.amax) {
    const cudaError_t error = cudaMemsetAsync(p.amax, 0, sizeof(float), stream);
    if (error != cudaSuccess) return error;
  }
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  if (p.columns > 0x7fffffff) return cudaErrorInvalidValue;
  if (p.columns % 4 == 0 && p.sumsPitch % 4 == 0) {
    launchRows<4>(p, stream);
  } else {
    launchRows<1>(p, stream);
  }
  return cudaGetLastError();
}

cudaError_t launchGemmAlpha(const GemmAlphaParams& p, cudaStream_t stream) {
  gemmAlphaKernel<<<1, 1, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace lockstep
