// The kernel of products of a few bf16 rows with codes. A block computes kBlockColumns columns of the result, for all rows. Each
// slice of K in a block has kColumnWarps warps; a warp computes 16 columns over its slice. Blocks of a cluster have other slices
// of the same columns, so that weights with few columns fill the GPU too. The sums of slices are added in ascending order.
//
// One instruction multiplies 16 elements along K, a step of the datapath (datapath.md §1). A step truncates each product to a
// multiple of one power of two and adds the results exactly, so the order of its elements does not matter: a lane has four
// consecutive elements, both of codes and of x.
#pragma once

#include <cooperative_groups.h>

#include "kernels/core/minifloat.cuh"
#include "kernels/device/device.cuh"
#include "kernels/device/occupancy.cuh"
#include "kernels/gemm/factors.cuh"
#include "kernels/gemm/few-rows.h"

namespace lockstep {

// The codes and scales of a weight. A scale belongs to kLength elements along K. kScale is its format, 0 for f32, kUnscaled for
// none.
constexpr uint32_t kUnscaled = 0xffffffff;
template <uint32_t kWord_, uint32_t kScale_, int kLength_>
struct WeightFormat {
  static constexpr uint32_t kWord = kWord_;
  static constexpr uint32_t kScale = kScale_;
  static constexpr int kLength = kLength_;
  static constexpr int kBits = storageBits(kWord);
  // The bytes of a scale, and of the scales of a line in a chunk.
  static constexpr int kScaleUnit = kScale == 0 ? 4 : 1;
  static constexpr int kScaleBytes = kScale == kUnscaled ? 0 : kScaleUnit * static_cast<int>(kFewRowsStep) / kLength;
};

constexpr int kChunk = static_cast<int>(kFewRowsStep);
constexpr int kStepElements = 16;
constexpr int kColumnWarps = 4;
constexpr int kSliceThreads = kColumnWarps * 32;
constexpr int kBlockColumns = kColumnWarps * 16;
constexpr int kMaxBlockSlices = 4;

// The layout of shared memory. Every slice of a block has a ring of stages; a stage holds codes, x and scales of a chunk of K.
// Pitches keep the accesses of a warp in different banks. After the last chunk the same memory holds the sums of slices.
template <typename Format, int kTiles>
struct FewRowsLayout {
  static constexpr int kStages = kTiles <= 2 ? 4 : kTiles == 4 ? 3 : 2;
  static constexpr int kCodeBytes = kChunk * Format::kBits / 8;
  static constexpr int kCodePitch = kCodeBytes + 16;
  static constexpr int kXPitch = kChunk * 2 + 32;
  static constexpr int kScalePitch = 8;
  static constexpr int kX = kBlockColumns * kCodePitch;
  static constexpr int kScales = kX + kTiles * 8 * kXPitch;
  static constexpr int kStage = kScales + kBlockColumns * kScalePitch;
  static constexpr int kRing = kStage * kStages;
  static constexpr int kSumPitch = kBlockColumns + 4;
  static constexpr int kSums = kTiles * 8 * kSumPitch;
  static_assert(kSums * 4 <= kRing);
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900

template <int kBytes>
__device__ inline void copyToStage(uint32_t to, const void* from, bool isInside) {
  const int bytes = isInside ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
  }
}

// Rounds two values to bf16; `low` is in the lower half.
__device__ inline uint32_t roundPair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Returns the values of two e4m3 codes.
__device__ inline float2 widenE4m3(uint32_t codes) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  float2 values;
  asm("{.reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
      : "=f"(values.x), "=f"(values.y)
      : "r"(halves));
  return values;
}

// The bytes of the bf16 values of the magnitudes 0 to 7 of e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
struct E2m1Bytes {
  uint32_t low[2];
  uint32_t high[2];
};

// Converts four e2m1 codes to two pairs of bf16 values.
__device__ inline uint2 widenE2m1(uint32_t codes, const E2m1Bytes& bytes) {
  const uint32_t magnitudes = codes & 0x7777;
  const uint32_t low = __byte_perm(bytes.low[0], bytes.low[1], magnitudes);
  const uint32_t signs = __byte_perm(codes << 4, codes, 0x5140);
  const uint32_t high = __byte_perm(bytes.high[0], bytes.high[1], magnitudes) | (signs & 0x80808080u);
  return make_uint2(__byte_perm(low, high, 0x5140), __byte_perm(low, high, 0x7362));
}

// Multiplies a pair of bf16 values by the lower or the upper half of `scales`.
__device__ inline uint32_t scalePair(uint32_t pair, uint32_t scales, bool isUpper) {
  uint32_t scaled;
  const uint32_t scale = __byte_perm(scales, 0, isUpper ? 0x3232 : 0x1010);
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(scaled) : "r"(pair), "r"(scale));
  return scaled;
}

// Adds the products of 16 columns of w and 8 rows of x over one step.
__device__ inline void addStep(float (&sums)[4], const uint32_t (&w)[4], uint2 x) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x.x), "r"(x.y));
}

// Returns the f32 number of an e8m0 code.
__device__ inline float e8m0ToFloat(uint32_t code) {
  return floatOf(code == 0 ? 0x00400000u : code == 255 ? 0x7fc00000u : code << 23);
}

// Returns scales of a line in a chunk, converted by lane `part` of the four that share the line: for e2m1 codes two bf16 numbers,
// the scales of two steps; else one f32 number. `from` is in shared memory.
template <typename Format>
__device__ inline uint32_t convertScales(const uint8_t* from, int part) {
  if constexpr (Format::kScale == 0) {
    return *reinterpret_cast<const uint32_t*>(from);
  } else if constexpr (Format::kScale == format::kE8m0) {
    const float scale = e8m0ToFloat(from[part]);
    return Format::kWord == format::kE2m1 ? roundPair(scale, scale) : bitsOf(scale);
  } else if constexpr (Format::kScale == kUnscaled) {
    return 0;
  } else {
    const float2 two = widenE4m3(*reinterpret_cast<const uint16_t*>(from + part * 2) & 0x7f7f);
    return roundPair(two.x, two.y);
  }
}

// Converts the four codes at `from` to bf16 values times their scale. For e2m1 the product is rounded once; for e4m3, to f32 and
// then to bf16. Both have the bits of dequantizing to bf16 in memory, because the product of an e2m1 value and its scale is exact
// in f32.
template <typename Format>
__device__ inline uint2 loadWeights(const uint8_t* from, uint32_t scales, bool isUpper, const E2m1Bytes& bytes) {
  if constexpr (Format::kWord == format::kE2m1) {
    const uint2 values = widenE2m1(*reinterpret_cast<const uint16_t*>(from), bytes);
    return make_uint2(scalePair(values.x, scales, isUpper), scalePair(values.y, scales, isUpper));
  } else {
    const uint32_t codes = *reinterpret_cast<const uint32_t*>(from);
    float2 low = widenE4m3(codes & 0xffff);
    float2 high = widenE4m3(codes >> 16);
    if constexpr (Format::kScale != kUnscaled) {
      const float scale = floatOf(scales);
      low = make_float2(__fmul_rn(low.x, scale), __fmul_rn(low.y, scale));
      high = make_float2(__fmul_rn(high.x, scale), __fmul_rn(high.y, scale));
    }
    return make_uint2(roundPair(low.x, low.y), roundPair(high.x, high.y));
  }
}

// The copies of one thread from device memory to the stages of its slice: the same pieces of every chunk.
template <typename Format, int kTiles>
class FewRowsCopies {
 public:
  __device__ FewRowsCopies(const GemmFewRowsParams& p, int64_t firstColumn, int64_t begin, uint32_t ring, int thread)
      : codesLeft_(static_cast<int>(min(p.columns - firstColumn, int64_t{kBlockColumns})) - thread / kAcross),
        scalesAreInside_(thread < kBlockColumns && firstColumn + thread < p.columns),
        xLeft_(static_cast<int>(p.rows) - thread / 16) {
    const int64_t linePitch = p.depth * Format::kBits / 8;
    const auto* data = static_cast<const uint8_t*>(p.data);
    const int64_t line = firstColumn + thread / kAcross;
    codes_ = data + (line < p.columns ? line : 0) * linePitch + begin * Format::kBits / 8 + thread % kAcross * 16;
    codesPitch_ = linePitch * kLinesApart;
    codesTo_ = ring + thread / kAcross * Layout::kCodePitch + thread % kAcross * 16;
    const int64_t scaleLine = (scalesAreInside_ ? firstColumn + thread : 0) >> p.scales.lineShift;
    scales_ = static_cast<const uint8_t*>(p.scales.data) +
              (scaleLine * p.scales.lineStride + begin / Format::kLength) * Format::kScaleUnit;
    scalesTo_ = ring + Layout::kScales + thread * Layout::kScalePitch;
    x_ = p.x + (xLeft_ > 0 ? thread / 16 : 0) * p.depth + begin + thread % 16 * 8;
    xPitch_ = p.depth * kRowsApart;
    xTo_ = ring + Layout::kX + thread / 16 * Layout::kXPitch + thread % 16 * 16;
  }

  // Starts the copies of chunk `chunk`.
  __device__ void start(int chunk) const {
    const uint32_t stage = chunk % Layout::kStages * Layout::kStage;
    const uint8_t* codes = codes_ + static_cast<int64_t>(chunk) * Layout::kCodeBytes;
#pragma unroll
    for (int i = 0; i < kBlockColumns / kLinesApart; ++i) {
      const bool isInside = i * kLinesApart < codesLeft_;
      copyToStage<16>(codesTo_ + stage + i * kLinesApart * Layout::kCodePitch,
                      isInside ? codes + i * codesPitch_ : codes_, isInside);
    }
    if constexpr (Format::kScaleBytes > 0) {
      if (threadIdx.x % kSliceThreads < kBlockColumns)
        copyToStage<Format::kScaleBytes>(scalesTo_ + stage, scales_ + static_cast<int64_t>(chunk) * Format::kScaleBytes,
                                         scalesAreInside_);
    }
    const uint16_t* x = x_ + static_cast<int64_t>(chunk) * kChunk;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const bool isInside = i * kRowsApart < xLeft_;
      copyToStage<16>(xTo_ + stage + i * kRowsApart * Layout::kXPitch, isInside ? x + i * xPitch_ : x_, isInside);
    }
  }

 private:
  using Layout = FewRowsLayout<Format, kTiles>;
  static constexpr int kAcross = Layout::kCodeBytes / 16;
  static constexpr int kLinesApart = kSliceThreads / kAcross;
  static constexpr int kRowsApart = kSliceThreads / 16;

  const uint8_t* codes_;
  const uint8_t* scales_;
  const uint16_t* x_;
  int64_t codesPitch_;
  int64_t xPitch_;
  uint32_t codesTo_;
  uint32_t scalesTo_;
  uint32_t xTo_;
  int codesLeft_;
  bool scalesAreInside_;
  int xLeft_;
};

// Adds the products of a chunk to the sums of a warp. `stage` is the stage of the chunk, in shared memory.
template <typename Format, int kTiles>
__device__ inline void addChunk(float (&sums)[kTiles][4], const uint8_t* stage, int warp, int lane,
                                const E2m1Bytes& bytes) {
  using Layout = FewRowsLayout<Format, kTiles>;
  const int line = warp * 16 + lane / 4;
  const int part = lane % 4;
  const uint8_t* codes = stage + line * Layout::kCodePitch + part * Format::kBits / 2;
  const uint8_t* x = stage + Layout::kX + lane / 4 * Layout::kXPitch + part * 8;
  uint32_t converted[2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    converted[i] = convertScales<Format>(stage + Layout::kScales + (line + i * 8) * Layout::kScalePitch, part);
  constexpr bool isConvertedByPart = Format::kScale != 0 && Format::kScale != kUnscaled;
  uint32_t scales[2];
#pragma unroll
  for (int step = 0; step < kChunk / kStepElements; ++step) {
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (step % 2 == 0)
        scales[i] = isConvertedByPart ? __shfl_sync(kFullMask, converted[i], step / 2, 4) : converted[i];
      // lanes convert two scales of one step each, or one scale of two steps
      const bool isUpper = Format::kLength == kStepElements && step % 2 == 1;
      const uint8_t* from = codes + i * 8 * Layout::kCodePitch + step * kStepElements * Format::kBits / 8;
      const uint2 values = loadWeights<Format>(from, scales[i], isUpper, bytes);
      w[i] = values.x;
      w[i + 2] = values.y;
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint8_t* from = x + tile * 8 * Layout::kXPitch + step * kStepElements * 2;
      addStep(sums[tile], w, *reinterpret_cast<const uint2*>(from));
    }
  }
}

#endif  // __CUDA_ARCH__ == 900

__device__ inline void storeWide(void* out, Wide type, int64_t index, float value) {
  if (type == Wide::kF32) {
    static_cast<float*>(out)[index] = value;
  } else {
    static_cast<uint16_t*>(out)[index] = type == Wide::kBf16 ? floatToBf16(value) : floatToHalf(value);
  }
}

// kTiles is the number of tiles of 8 rows, rounded up to a power of two.
template <typename Format, int kTiles>
__global__ void __launch_bounds__(kSliceThreads* kMaxBlockSlices, 1)
    gemmFewRowsKernel(const GemmFewRowsParams p, int64_t sliceLength) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
  using Layout = FewRowsLayout<Format, kTiles>;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ uint4 constants[32];
  const auto cluster = cooperative_groups::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int blocks = static_cast<int>(cluster.num_blocks());
  const int slices = static_cast<int>(blockDim.x) / kSliceThreads;
  const int slice = static_cast<int>(threadIdx.x) / kSliceThreads;
  const int thread = static_cast<int>(threadIdx.x) % kSliceThreads;
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int64_t firstColumn = static_cast<int64_t>(blockIdx.x) / blocks * kBlockColumns;
  const int64_t begin = min((rank * slices + slice) * sliceLength, p.depth);
  const int chunks = static_cast<int>((min(begin + sliceLength, p.depth) - begin) / kChunk);
  uint8_t* ring = memory + slice * Layout::kRing;
  const FewRowsCopies<Format, kTiles> copies(p, firstColumn, begin,
                                             static_cast<uint32_t>(__cvta_generic_to_shared(ring)), thread);
#pragma unroll
  for (int i = 0; i < Layout::kStages - 1; ++i) {
    if (i < chunks) copies.start(i);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  // Two constants are read from shared memory, where each lane has its copy, so that the compiler keeps them in registers.
  if (threadIdx.x < 32) constants[threadIdx.x] = make_uint4(0xC0800000u, 0xC0804000u, 0x3F3F3F00u, 0x40404040u);
  __syncthreads();
  const uint4 words = constants[lane];
  const E2m1Bytes bytes{{words.x, 0xC0804000u}, {words.z, 0x40404040u}};

  float sums[kTiles][4] = {};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    asm volatile("cp.async.wait_group %0;" ::"n"(Layout::kStages - 2) : "memory");
    asm volatile("bar.sync %0, %1;" ::"r"(slice + 1), "n"(kSliceThreads) : "memory");
    if (chunk + Layout::kStages - 1 < chunks) copies.start(chunk + Layout::kStages - 1);
    asm volatile("cp.async.commit_group;" ::: "memory");
    addChunk<Format, kTiles>(sums, ring + chunk % Layout::kStages * Layout::kStage, warp, lane, bytes);
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();

  float* shared = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = tile * 8 + lane % 4 * 2 + i % 2;
      const int column = warp * 16 + lane / 4 + i / 2 * 8;
      shared[slice * Layout::kSums + row * Layout::kSumPitch + column] = sums[tile][i];
    }
  }
  if (blocks > 1) {
    cluster.sync();
  } else {
    __syncthreads();
  }
  // the blocks of a cluster divide the columns
  const float s = scaleOf(p.factors);
  const int width = (kBlockColumns + blocks - 1) / blocks;
  for (int i = static_cast<int>(threadIdx.x); i < p.rows * width; i += static_cast<int>(blockDim.x)) {
    const int row = i / width;
    const int column = rank * width + i % width;
    if (column >= kBlockColumns || firstColumn + column >= p.columns) continue;
    float* from = shared + row * Layout::kSumPitch + column;
    float sum = 0;
    for (int block = 0; block < blocks; ++block) {
      const float* sumsOfBlock = blocks == 1 ? from : cluster.map_shared_rank(from, block);
      for (int each = 0; each < slices; ++each) sum = __fadd_rn(sum, sumsOfBlock[each * Layout::kSums]);
    }
    storeWide(p.out, p.outType, row * p.columns + firstColumn + column, combine(sum, s, 0, 0, p.splits > 1));
  }
  if (blocks > 1) cluster.sync();
#endif
}

// The number of slices of K in a block, so that slices of several blocks are `splits` together.
inline int slicesOfBlock(int64_t splits) {
  for (int slices = kMaxBlockSlices; slices > 1; --slices) {
    if (splits % slices == 0) return slices;
  }
  return 1;
}

template <typename Format, int kTiles>
cudaError_t launchFewRowsTiles(const GemmFewRowsParams& p, cudaStream_t stream) {
  using Layout = FewRowsLayout<Format, kTiles>;
  constexpr int64_t kSplitTile = 64;
  constexpr int kMaxCluster = 8;
  const int slices = slicesOfBlock(p.splits);
  const auto blocks = static_cast<unsigned>(p.splits / slices);
  const int64_t sliceLength = ceilDivide(ceilDivide(p.depth, kSplitTile), p.splits) * kSplitTile;
  if (blocks > kMaxCluster || sliceLength % kChunk != 0) return cudaErrorInvalidValue;
  const auto kernel = gemmFewRowsKernel<Format, kTiles>;
  if (const cudaError_t error = allowShared(kernel); error != cudaSuccess) return error;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {blocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ceilDivide(p.columns, kBlockColumns)) * blocks);
  config.blockDim = dim3(static_cast<unsigned>(slices * kSliceThreads));
  // Two blocks of a cluster on one multiprocessor leave another one idle, so each takes more than half of the shared memory.
  constexpr int64_t kMoreThanHalf = 116 * 1024;
  config.dynamicSmemBytes =
      static_cast<size_t>(std::max<int64_t>(slices * Layout::kRing, blocks > 1 ? kMoreThanHalf : 0));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, p, sliceLength);
}

template <typename Format>
cudaError_t launchFewRowsOf(const GemmFewRowsParams& p, cudaStream_t stream) {
  if (p.rows <= 8) return launchFewRowsTiles<Format, 1>(p, stream);
  if (p.rows <= 16) return launchFewRowsTiles<Format, 2>(p, stream);
  if (p.rows <= 32) return launchFewRowsTiles<Format, 4>(p, stream);
  return launchFewRowsTiles<Format, 8>(p, stream);
}

}  // namespace lockstep
