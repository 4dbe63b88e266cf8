// The amaxes of NVFP4's copies. startAmaxes initialises them in one thread. plainAmax reads the source in a grid-stride
// loop of 16-byte loads. If the columnwise copy is transformed, transformedAmax reads the source instead: a warp
// transforms 16 rows of 128 columns in registers, on tensor cores where they exist, and computes the amaxes of both
// copies. The kernels overlap by programmatic dependent launch (kernels/device/pdl.cuh).
#include "kernels/device/device.cuh"
#include "kernels/device/pair.cuh"
#include "kernels/quantize/hadamard/hadamard.cuh"
#include "kernels/quantize/hadamard/mma.cuh"
#include "kernels/quantize/noop.cuh"
#include "kernels/quantize/nvfp4/codes.cuh"
#include "kernels/quantize/nvfp4/nvfp4.h"

namespace lockstep {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
// The number of resident blocks of plainAmax per multiprocessor.
constexpr int kResident = 6;
// The number of 16-byte chunks that a thread of plainAmax loads before it uses the first.
constexpr int kChunks = 8;
// The number of columns and of rows that a warp of transformedAmax processes at a time.
constexpr int kColumns = 128;
constexpr int kRows = 16;

// The amaxes that a kernel updates: the source's amax for each copy, and the amax of the transformed values. Null if not needed.
struct AmaxOuts {
  float* plain[2];
  float* transformed;
};

// Replaces each output by the block's maximum if that is larger, after startAmaxes has finished. `values` are bit
// patterns. All threads of the block must call it.
template <int count>
__device__ void raiseAmaxes(float* const (&outs)[count], const uint32_t (&values)[count]) {
  __shared__ uint32_t maxima[count][kWarps];
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const uint32_t largest = __reduce_max_sync(kFullMask, values[i]);
    if (threadIdx.x % 32 == 0) maxima[i][threadIdx.x / 32] = largest;
  }
  __syncthreads();
  awaitPrevious();
  if (threadIdx.x >= count || outs[threadIdx.x] == nullptr) return;
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) largest = max(largest, maxima[threadIdx.x][i]);
  atomicMax(reinterpret_cast<uint32_t*>(outs[threadIdx.x]), largest);
}

__global__ void startAmaxes(Nvfp4Copy rowwise, Nvfp4Copy columnwise, const float* noop) {
  // This kernel calls awaitPrevious first. The kernels that start early because of letNextStart read the source before
  // they call awaitPrevious themselves, so the source must be complete by then.
  awaitPrevious();
  letNextStart();
  if (isNoop(noop)) return;
  for (const Nvfp4Copy& copy : {rowwise, columnwise}) {
    if (copy.codes != nullptr) *copy.amax = copy.givenAmax != nullptr ? *copy.givenAmax : 0;
  }
}

// Returns the larger of `largest` and the magnitudes of a chunk, NaN ignored. `largest` is the bits of an f32 or, for
// 16-bit types, a pair of maxima.
template <Wide type>
__device__ uint32_t raiseTo(uint32_t largest, const Bytes16& x) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (type == Wide::kF32) {
      largest = bitsOf(fmaxf(floatOf(largest), fabsf(floatOf(x.words[i]))));
    } else {
      largest = raiseToPair<type>(largest, x.words[i]);
    }
  }
  return largest;
}

template <Wide type>
__global__ void __launch_bounds__(kThreads, kResident)
    plainAmax(const Bytes16* x, int64_t chunks, AmaxOuts outs, const float* noop) {
  letNextStart();
  if (isNoop(noop)) return awaitPrevious();
  constexpr int kEach = kThreads * kChunks;
  uint32_t largest = 0;
#pragma unroll 1
  for (int64_t at = int64_t{blockIdx.x} * kEach; at < chunks; at += int64_t{gridDim.x} * kEach) {
    Bytes16 loaded[kChunks] = {};
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int64_t chunk = at + i * kThreads + threadIdx.x;
      if (chunk < chunks) loaded[i] = x[chunk];
    }
#pragma unroll
    for (int i = 0; i < kChunks; ++i) largest = raiseTo<type>(largest, loaded[i]);
  }
  if constexpr (type != Wide::kF32) largest = bitsOf(lowOf<type>(maxOfLanes<type>(largest)));
  raiseAmaxes(outs.plain, {largest, largest});
}

// The amaxes of 16 rows of 128 columns as bits. `plain`: of the source, a pair of bf16. `transformed`: of the transformed values,
// an f32.
struct TransformedAmax {
  uint32_t plain = 0;
  uint32_t transformed = 0;

  // Updates the amaxes without tensor cores. Each lane transforms 4 columns.
  __device__ void raiseByColumns(const uint16_t* x, int64_t columns, int64_t column, uint32_t signs) {
    column += threadIdx.x % 32 * 4;
    uint2 down[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      down[i] = column < columns ? *reinterpret_cast<const uint2*>(x + i * columns + column) : make_uint2(0, 0);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      uint32_t words[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t a = c < 2 ? down[2 * i].x : down[2 * i].y;
        const uint32_t b = c < 2 ? down[2 * i + 1].x : down[2 * i + 1].y;
        words[i] = c % 2 == 0 ? lowLanes(a, b) : highLanes(a, b);
        plain = raiseToPair<Wide::kBf16>(plain, words[i]);
      }
      transformed = max(transformed, hadamardAmax(words, signs));
    }
  }

  // Updates the amaxes on tensor cores. Each lane loads 4 rows of 8 columns in each half of the 128 columns.
  __device__ void raiseByMma(const uint16_t* x, int64_t columns, int64_t column, const HadamardMatrix& matrix) {
    const uint16_t* from = x + threadIdx.x % 4 * 4 * columns;
    column += threadIdx.x % 32 / 4 * 8;
    Bytes16 down[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t at = column + half * (kColumns / 2);
        if (at < columns) down[half][i] = *reinterpret_cast<const Bytes16*>(from + i * columns + at);
      }
    }
    float largest = floatOf(transformed);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) plain = raiseTo<Wide::kBf16>(plain, down[half][i]);
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const auto pair = [&](int i) {
          const uint32_t a = down[half][i].words[c / 2];
          const uint32_t b = down[half][i + 1].words[c / 2];
          return c % 2 == 0 ? lowLanes(a, b) : highLanes(a, b);
        };
        const HadamardStep y = matrix.step(pair(0), pair(2));
        const float low = fmaxf(fabsf(y.low[0]), fabsf(y.low[1]));
        const float high = fmaxf(fabsf(y.high[0]), fabsf(y.high[1]));
        largest = fmaxf(largest, fmaxf(low, high));
      }
    }
    transformed = bitsOf(largest);
  }
};

__global__ void __launch_bounds__(kThreads, kResident / 2)
    transformedAmax(const uint16_t* x, int64_t rows, int64_t columns, uint32_t signs, AmaxOuts outs,
                    const float* noop) {
  letNextStart();
  if (isNoop(noop)) return awaitPrevious();
  const HadamardMatrix matrix(signs, 4, 2);
  const uint32_t across = static_cast<uint32_t>(ceilDivide(columns, kColumns));
  const uint32_t tiles = across * static_cast<uint32_t>(rows / kRows);
  TransformedAmax amax;
#pragma unroll 1
  for (uint32_t tile = blockIdx.x * kWarps + threadIdx.x / 32; tile < tiles; tile += gridDim.x * kWarps) {
    const uint16_t* from = x + int64_t{tile / across} * kRows * columns;
    const int64_t column = int64_t{tile % across} * kColumns;
    if constexpr (kHadamardByMma) {
      amax.raiseByMma(from, columns, column, matrix);
    } else {
      amax.raiseByColumns(from, columns, column, signs);
    }
  }
  // Rounding is monotonic, so only the maximum is rounded.
  const uint32_t transformed = bf16Pair(0.0f, floatOf(amax.transformed)) & 0xffff0000u;
  raiseAmaxes({outs.plain[0], outs.transformed}, {maxOfLanes<Wide::kBf16>(amax.plain) << 16, transformed});
}

}  // namespace

cudaError_t launchNvfp4Amaxes(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  launchPdl(startAmaxes, 1, 1, 0, stream, p.rowwise, p.columnwise, p.noop);
  const auto own = [](const Nvfp4Copy& copy) {
    return copy.codes != nullptr && copy.givenAmax == nullptr ? copy.amax : nullptr;
  };
  float* const columnwise = own(p.columnwise);
  const AmaxOuts outs = {{own(p.rowwise), p.transforms ? nullptr : columnwise}, p.transforms ? columnwise : nullptr};
  const int64_t count = p.rows * p.columns;
  if (count == 0) return cudaGetLastError();
  if (outs.transformed != nullptr) {
    const int64_t warps = ceilDivide(p.columns, kColumns) * (p.rows / kRows);
    launchPdl(transformedAmax, fillingGrid(ceilDivide(warps, kWarps), kResident / 2), kThreads, 0, stream,
              static_cast<const uint16_t*>(p.x), p.rows, p.columns, p.signs, outs, p.noop);
  } else if (outs.plain[0] != nullptr || outs.plain[1] != nullptr) {
    withWide(p.xType, [&](auto type) {
      const int64_t chunks = count * sizeof(typename WideOf<type.value>::Storage) / 16;
      const uint32_t blocks = fillingGrid(ceilDivide(chunks, kThreads * kChunks), kResident);
      launchPdl(plainAmax<type.value>, blocks, kThreads, 0, stream, static_cast<const Bytes16*>(p.x), chunks, outs,
                p.noop);
    });
  }
  return cudaGetLastError();
}

}  // namespace lockstep
