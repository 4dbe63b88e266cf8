// Matrix products in plain f32. A block of 256 threads computes one tile of the result. Asynchronous copies load the operands
// into shared memory in a pipeline of two stages. Each thread adds products in ascending order of k.
#include <algorithm>

#include "kernels/device/device.cuh"
#include "kernels/gemm/calls.gen.h"

namespace lockstep {

namespace {

// A block of 16 x 16 threads computes one tile of the result. Thread (tx, ty) computes rows ty + 16 i and columns tx + 16 j.
constexpr int kSide = 16;
constexpr int kThreads = kSide * kSide;
// The number of k's per pipeline stage. Shared memory has two stages: one is multiplied while the next is copied.
constexpr int kStep = 16;
constexpr int kChunks = kStep / 4;
// The number of floats from one line of a stage to the next. It is an odd number of 16-byte units, so that 8
// consecutive lines start in 8 different groups of banks.
constexpr int kPitch = kStep + 4;

// Starts an asynchronous copy of the first `bytes` (0 to 16) bytes to shared memory. The rest of the 16 bytes is filled
// with zeros.
__device__ inline void copyAsync(float* to, const float* from, int bytes) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

__device__ inline void commitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ inline void waitForCopies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

// The part of an operand that one thread copies: 16 bytes of every kGap-th line of a tile. Beyond the end of the
// operand, the last line is copied instead.
template <int kLines>
struct Copier {
  static constexpr int kGap = kThreads / kChunks;
  static constexpr int kCount = kLines / kGap;

  const float* from[kCount];
  int to;

  __device__ Copier(const float* data, int64_t pitch, int64_t first, int64_t lines) {
    const int line = static_cast<int>(threadIdx.x) / kChunks;
    const int offset = static_cast<int>(threadIdx.x) % kChunks * 4;
    to = line * kPitch + offset;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t existing = first + line + i * kGap;
      from[i] = data + (existing < lines ? existing : lines - 1) * pitch + offset;
    }
  }

  // Starts to copy a stage and advances to the next one. `left` is the number of k's from this thread's first one to
  // the end.
  __device__ void start(float* stage, int64_t left) {
    const int bytes = left >= 4 ? 16 : left > 0 ? static_cast<int>(left) * 4 : 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      copyAsync(stage + to + i * kGap * kPitch, from[i], bytes);
      from[i] += kStep;
    }
  }
};

__device__ inline void addProduct(float& sum, float x, float w) { sum = __fadd_rn(sum, __fmul_rn(x, w)); }

// Adds the products of one stage to kCount x kCount accumulators, in ascending order of k.
template <int kCount>
__device__ inline void addStage(float (&sums)[kCount][kCount], const float* x, const float* w) {
#pragma unroll 1
  for (int k = 0; k < kStep; k += 2) {
    float2 rows[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) rows[i] = *reinterpret_cast<const float2*>(x + i * kSide * kPitch + k);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float2 column = *reinterpret_cast<const float2*>(w + j * kSide * kPitch + k);
#pragma unroll
      for (int i = 0; i < kCount; ++i) addProduct(sums[i][j], rows[i].x, column.x);
#pragma unroll
      for (int i = 0; i < kCount; ++i) addProduct(sums[i][j], rows[i].y, column.y);
    }
  }
}

// kCount is the number of rows, and of columns, that a thread computes.
template <int kCount>
__global__ void __launch_bounds__(kThreads, 2) gemmPlainKernel(const GemmPlainParams p, int64_t tilesAcross) {
  constexpr int kTile = kSide * kCount;
  __shared__ __align__(16) float xs[2][kTile * kPitch];
  __shared__ __align__(16) float ws[2][kTile * kPitch];
  const int64_t row = blockIdx.x / tilesAcross * kTile;
  const int64_t column = blockIdx.x % tilesAcross * kTile;
  const int64_t item = blockIdx.y;
  // a warp covers 8 columns by 4 rows of threads
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int tx = lane % 8 + warp % 2 * 8;
  const int ty = lane / 8 + warp / 2 * 4;

  Copier<kTile> x(p.x + item * p.rows * p.xPitch, p.xPitch, row, p.rows);
  Copier<kTile> w(p.w + item * p.columns * p.wPitch, p.wPitch, column, p.columns);
  int64_t left = p.depth - static_cast<int>(threadIdx.x) % kChunks * 4;
  const auto startCopies = [&](int stage) {
    x.start(xs[stage], left);
    w.start(ws[stage], left);
    left -= kStep;
    commitCopies();
  };

  float sums[kCount][kCount] = {};
  if (p.depth > 0) startCopies(0);
  const int64_t steps = ceilDivide(p.depth, kStep);
  for (int64_t step = 0; step < steps; ++step) {
    const int stage = static_cast<int>(step & 1);
    waitForCopies();
    __syncthreads();
    if (step + 1 < steps) startCopies(stage ^ 1);
    addStage(sums, xs[stage] + ty * kPitch, ws[stage] + tx * kPitch);
  }

#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int64_t m = row + ty + i * kSide;
    if (m >= p.rows) break;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const int64_t n = column + tx + j * kSide;
      if (n < p.columns) p.out[(item * p.rows + m) * p.outPitch + n] = sums[i][j];
    }
  }
}

template <int kCount>
void launchTiles(const GemmPlainParams& p, cudaStream_t stream) {
  const int64_t tilesAcross = ceilDivide(p.columns, kSide * kCount);
  const auto blocks = static_cast<unsigned>(ceilDivide(p.rows, kSide * kCount) * tilesAcross);
  GemmPlainParams items = p;
  for (int64_t left = p.batch; left > 0; left -= kMaxGridY) {
    const dim3 grid(blocks, static_cast<unsigned>(std::min(left, kMaxGridY)));
    gemmPlainKernel<kCount><<<grid, kThreads, 0, stream>>>(items, tilesAcross);
    items.x += kMaxGridY * p.rows * p.xPitch;
    items.w += kMaxGridY * p.columns * p.wPitch;
    items.out += kMaxGridY * p.rows * p.outPitch;
  }
}

}  // namespace

cudaError_t launchGemmPlain(const GemmPlainParams& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  // A large GPU holds about kEnoughTiles blocks at a time. With fewer tiles than that, use four times as many smaller
  // tiles.
  constexpr int64_t kEnoughTiles = 256;
  const int64_t tiles = ceilDivide(p.rows, 128) * ceilDivide(p.columns, 128);
  if (tiles > 0x7fffffff || p.batch > 0x7fffffff) return cudaErrorInvalidValue;
  if (tiles * p.batch < kEnoughTiles) {
    launchTiles<4>(p, stream);
  } else {
    launchTiles<8>(p, stream);
  }
  return cudaGetLastError();
}

}  // namespace lockstep
