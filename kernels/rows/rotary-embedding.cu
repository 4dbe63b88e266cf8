// Rotary embeddings of queries and keys (docs/numerics.md 10.7). A thread rotates the same `width` pairs of several heads of a
// row, whose angles it loads once, or copies `width` elements of these heads that are not rotated.
#include "kernels/device/elements.cuh"
#include "kernels/rows/rotary-embedding.gen.h"

namespace lockstep {

namespace {

constexpr float kInfinity = __builtin_huge_valf();
// The position of a row that belongs to no sequence.
constexpr int64_t kNone = INT64_MIN;
// The largest number of heads of a thread.
constexpr int kHeadsPerThread = 4;

__device__ int64_t startOf(const RotaryEmbeddingParams& p, int64_t sequence) {
  return p.starts ? p.starts[sequence] : 0;
}

__device__ int64_t positionOf(const RotaryEmbeddingParams& p, int64_t row) {
  if (!p.cumulative) return row / p.positionStride % p.length + startOf(p, row / p.sequenceStride % p.batch);
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t begin = p.cumulative[b];
    if (begin <= row && row < p.cumulative[b + 1]) return row - begin + startOf(p, b);
  }
  return kNone;
}

template <int width>
__device__ void rotate(const float (&c)[width], const float (&s)[width], float (&a)[width], float (&b)[width]) {
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float first = a[i];
    a[i] = first * c[i] - b[i] * s[i];
    b[i] = b[i] * c[i] + first * s[i];
  }
}

// Loads the cosines and sines of `width` pairs from `pair` on; NaN for a position outside the tables.
template <int width>
__device__ void loadAngles(const RotaryEmbeddingParams& p, int64_t position, int64_t pair, float (&c)[width],
                           float (&s)[width]) {
  if (position >= 0 && position < p.positions) {
    loadElements(p.cos, Wide::kF32, position * p.pairs + pair, c);
    loadElements(p.sin, Wide::kF32, position * p.pairs + pair, s);
  } else {
#pragma unroll
    for (int i = 0; i < width; ++i) c[i] = s[i] = kInfinity - kInfinity;
  }
  if (!p.inverse) return;
#pragma unroll
  for (int i = 0; i < width; ++i) s[i] = -s[i];
}

// Rotates the pairs [pair, pair + width) of the head that begins at element `head` by angles with these cosines and sines.
template <int width>
__device__ void rotatePairs(const RotaryEmbeddingParams& p, const float (&c)[width], const float (&s)[width],
                            int64_t head, int64_t pair) {
  float a[width];
  float b[width];
  if (!p.interleaved) {
    loadElements(p.x, p.xType, head + pair, a);
    loadElements(p.x, p.xType, head + p.pairs + pair, b);
    rotate(c, s, a, b);
    storeElements(p.out, p.outType, head + pair, a);
    storeElements(p.out, p.outType, head + p.pairs + pair, b);
    return;
  }
  const int64_t first = head + 2 * pair;
  float low[width];
  float high[width];
  loadElements(p.x, p.xType, first, low);
  loadElements(p.x, p.xType, first + width, high);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    a[i] = 2 * i < width ? low[2 * i % width] : high[2 * i % width];
    b[i] = 2 * i + 1 < width ? low[(2 * i + 1) % width] : high[(2 * i + 1) % width];
  }
  rotate(c, s, a, b);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    (2 * i < width ? low : high)[2 * i % width] = a[i];
    (2 * i + 1 < width ? low : high)[(2 * i + 1) % width] = b[i];
  }
  storeElements(p.out, p.outType, first, low);
  storeElements(p.out, p.outType, first + width, high);
}

// Heads h, h + groups, ... belong to one thread.
__host__ __device__ int64_t headGroups(const RotaryEmbeddingParams& p) { return ceilDivide(p.heads, kHeadsPerThread); }

// If `width` is kPack, both halves of the rotated elements and the rest must be whole packs.
template <int width>
__global__ void __launch_bounds__(kRowThreads) rotaryEmbeddingKernel(const RotaryEmbeddingParams p) {
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t rotations = p.pairs / width;
  const int64_t units = rotations + (p.width - 2 * p.pairs) / width;
  const int64_t groups = headGroups(p);
  if (unit >= units * groups) return;
  const int64_t index = unit % units;
  const int64_t firstHead = unit / units;
  const float zeros[width] = {};
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < p.rows; row += step) {
    const int64_t position = positionOf(p, row);
    if (index >= rotations) {
      const int64_t element = 2 * p.pairs + (index - rotations) * width;
      for (int64_t head = firstHead; head < p.heads; head += groups) {
        const int64_t index = (row * p.heads + head) * p.width + element;
        float values[width] = {};
        if (position != kNone) loadElements(p.x, p.xType, index, values);
        storeElements(p.out, p.outType, index, values);
      }
      continue;
    }
    float c[width];
    float s[width];
    if (position != kNone) loadAngles(p, position, index * width, c, s);
#pragma unroll 2
    for (int64_t head = firstHead; head < p.heads; head += groups) {
      const int64_t first = (row * p.heads + head) * p.width;
      if (position != kNone) {
        rotatePairs(p, c, s, first, index * width);
      } else {
        storeElements(p.out, p.outType, first + index * width, zeros);
        storeElements(p.out, p.outType, first + p.pairs + index * width, zeros);
      }
    }
  }
}

template <int width>
void launch(const RotaryEmbeddingParams& p, cudaStream_t stream) {
  const RowGrid grid = rowGrid(p.rows, headGroups(p) * (p.width - p.pairs) / width);
  rotaryEmbeddingKernel<width><<<grid.blocks, grid.threads, 0, stream>>>(p);
}

}  // namespace

cudaError_t launchRotaryEmbedding(const RotaryEmbeddingParams& p, cudaStream_t stream) {
  if (p.rows == 0 || p.heads == 0 || p.width == 0) return cudaSuccess;
  if (p.pairs % kPack == 0 && p.width % kPack == 0) {
    launch<kPack>(p, stream);
  } else {
    launch<1>(p, stream);
  }
  return cudaGetLastError();
}

}  // namespace lockstep
