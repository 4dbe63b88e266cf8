// NVFP4 quantization with 4over6: each block's scale is chosen so that its amax maps to 6 or to 4, whichever gives the
// smaller error. A thread block quantizes a 128 x 64 tile in shared memory, along rows and along columns. A thread has
// two blocks of 16 elements in either direction.
#include "kernels/quantize/noop.cuh"
#include "kernels/quantize/nvfp4/codes.cuh"
#include "kernels/quantize/nvfp4/nvfp4.h"

namespace lockstep {

namespace {

// A candidate for the scale of a block: its value, and the multiplier of the block's elements.
struct Candidate {
  float scale;
  float multiplier;
};

// Rounds `value`, which is not negative, to e4m3. Larger values than 448 become 448.
__device__ float roundE4m3(float value) {
  const uint32_t a = min(bitsOf(value), 0x43e00000u);
  const float c = floatOf((max(a, 0x3c800000u) & 0x7f800000u) + (20 << 23));  // at least 2^-6
  return floatOf(a) + c - c;
}

// Rounds x, which is not NaN, to e2m1.
__device__ float roundE2m1(float x) {
  const uint32_t a = min(bitsOf(x) & 0x7fffffffu, 0x40c00000u);
  const float c = floatOf((max(a, 0x3f800000u) & 0x7f800000u) + (22 << 23));
  return floatOf(bitsOf(floatOf(a) + c - c) | (bitsOf(x) & 0x80000000u));
}

// Returns the candidate with the smaller error, or `six` if the errors are equal.
__device__ Candidate smaller(float errorSix, const Candidate& six, float errorFour, const Candidate& four) {
  const bool takesFour = errorFour < errorSix;
  return {takesFour ? four.scale : six.scale, takesFour ? four.multiplier : six.multiplier};
}

struct Chooser {
  Nvfp4Levels levels;
  // The largest element value times the largest block scale.
  float full;
  bool squared;

  __device__ Chooser(const Nvfp4Levels& levels, float e4m3Max, bool squared)
      : levels(levels), full(6 * e4m3Max), squared(squared) {}

  // The candidate that maps the block's amax to 4 if `four`, else to 6.
  __device__ Candidate candidate(float blockAmax, bool four) const {
    const float base = blockAmax / 6 * levels.encode;
    const float scale = roundE4m3(four ? base * 1.5f : base);
    return {scale, twoLevelMultiplier(scale, levels.decode)};
  }

  // Returns the error of one candidate for a block, summed in element order.
  template <Wide type>
  __device__ float error(const Fp4Block<type>& x, const Candidate& candidate) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kFp4Block; ++i) {
      const float q = roundE2m1(x[i] * candidate.multiplier);
      const float d = q * candidate.scale * levels.amax / full - x[i];
      sum += squared ? d * d : fabsf(d);
    }
    return sum;
  }
};

// The e4m3 code of a non-negative value that e4m3 represents exactly.
__device__ uint32_t codeOfE4m3(float value) { return encodeNearest<format::kE4m3>(value); }

// Returns the butterfly sum of a group of lanes to each lane of the group. The steps are 16, 8 and so on down to `first`, a
// power of two. In each step a lane adds the value of the lane whose index differs in this one bit.
__device__ float sumAcross(float value, int first) {
  for (int step = 16; step >= first; step /= 2) value += __shfl_xor_sync(kFullMask, value, step);
  return value;
}

// Exchanges a value with the thread that has the other half of the columns of this thread's 16x16 blocks. All threads
// of the block must call it.
__device__ float ofOtherHalf(float value) {
  __shared__ float values[kFp4Threads];
  __syncthreads();
  values[threadIdx.x] = value;
  __syncthreads();
  return values[threadIdx.x ^ 32];
}

__device__ float maxAcross(float value, int first) {
  for (int step = 16; step >= first; step /= 2) value = fmaxf(value, __shfl_xor_sync(kFullMask, value, step));
  return value;
}

// The levels of a line of a copy with `lines` lines: from the line's amax with rowScaled, else from the tensor's.
__device__ Nvfp4Levels levelsOf(const QuantizeNvfp4Params& p, const Nvfp4Copy& copy, int64_t line, int64_t lines,
                                const Nvfp4Levels& ofTensor) {
  if (!p.rowScaled || line >= lines) return ofTensor;
  const float encode = globalScale(copy.amax[line], 6 * p.e4m3Max);
  return {encode, 1 / encode, copy.amax[line]};
}

template <Wide type>
__device__ void quantizeRows(const QuantizeNvfp4Params& p, const Fp4Tile<type>& tile, const Nvfp4Origin& at,
                             const Nvfp4Levels& levels) {
  const Fp4Scales stored(p.rowwise.scales, at.row, at.column / kFp4Block);
  const Fp4RowItem<type> item;
  const int64_t row = at.row + item.row;
  const Chooser chooser(levelsOf(p, p.rowwise, row, p.rows, levels), p.e4m3Max, p.squaredError);
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    const int64_t column = at.column + (item.block + i) * kFp4Block;
    Fp4Block<type> x = tile.rowBlock(item, i);
    float amax = x.canonicalizeNaN();
    if (p.square) amax = maxAcross(amax, 2);
    const Candidate six = chooser.candidate(amax, false);
    const Candidate four = chooser.candidate(amax, true);
    float errorSix = chooser.error(x, six);
    float errorFour = chooser.error(x, four);
    if (p.square) {
      errorSix = sumAcross(errorSix, 2);
      errorFour = sumAcross(errorFour, 2);
    }
    const Candidate chosen = smaller(errorSix, six, errorFour, four);
    if (row >= p.rows || column >= p.columns) continue;
    *reinterpret_cast<uint2*>(p.rowwise.codes + (row * p.columns + column) / 2) = encodeFp4(x, chosen.multiplier);
    stored.store(item.row, item.block + i, codeOfE4m3(chosen.scale));
  }
}

template <Wide type>
__device__ void quantizeColumns(const QuantizeNvfp4Params& p, const Fp4Tile<type>& tile, const Nvfp4Origin& at,
                                const Nvfp4Levels& levels) {
  const Fp4Scales stored(p.columnwise.scales, at.column, at.row / kFp4Block);
  const Fp4ColumnItem<type> item;
  const int64_t column = at.column + item.column;
  const Chooser chooser(levelsOf(p, p.columnwise, column, p.columns, levels), p.e4m3Max, p.squaredError);
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    const int line = item.line + i;
    const int64_t row = at.row + line * kFp4Block;
    Fp4Block<type> x = tile.columnBlock(item, i);
    float amax = x.canonicalizeNaN();
    if (p.square) amax = maxAcross(fmaxf(amax, ofOtherHalf(amax)), 4);
    const Candidate six = chooser.candidate(amax, false);
    const Candidate four = chooser.candidate(amax, true);
    float errorSix = chooser.error(x, six);
    float errorFour = chooser.error(x, four);
    if (p.square) {
      // columns that are eight apart are in different halves; they are added first
      errorSix = sumAcross(errorSix + ofOtherHalf(errorSix), 4);
      errorFour = sumAcross(errorFour + ofOtherHalf(errorFour), 4);
    }
    const Candidate chosen = smaller(errorSix, six, errorFour, four);
    if (row >= p.rows || column >= p.columns) continue;
    *reinterpret_cast<uint2*>(p.columnwise.codes + (column * p.rows + row) / 2) = encodeFp4(x, chosen.multiplier);
    stored.store(item.column, line, codeOfE4m3(chosen.scale));
  }
}

template <Wide type>
__global__ void __launch_bounds__(kFp4Threads) quantizeFourOverSix(const QuantizeNvfp4Params p) {
  __shared__ Fp4Tile<type> tile;
  __shared__ Nvfp4Shared shared;
  if (isNoop(p.noop)) return;
  const Nvfp4Origin at(blockIdx.x, p.columns);
  typename Fp4Tile<type>::Loader(p.x, p.rows, p.columns, at.row, at.column).start(tile, 0);
  shared.start(p);
  tile.wait();
  if (p.rowwise.codes != nullptr) quantizeRows<type>(p, tile, at, shared.levels[0]);
  if (p.columnwise.codes != nullptr) quantizeColumns<type>(p, tile, at, shared.levels[1]);
}

}  // namespace

cudaError_t launchNvfp4FourOverSix(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  withWide(p.xType, [&](auto type) { quantizeFourOverSix<type.value><<<nvfp4Tiles(p), kFp4Threads, 0, stream>>>(p); });
  return cudaGetLastError();
}

}  // namespace lockstep
