// Sums, means and maxima over ranks. The kernels are limited by memory bandwidth: each part is read once, 16 bytes at a time
// if all parts are aligned to 16 bytes. For 2, 4 and 8 ranks, a thread issues all its loads before it adds.
#include "kernels/collective/calls.gen.h"
#include "kernels/device/elements.cuh"

namespace lockstep {

namespace {

constexpr int kFoldThreads = 256;

// The operation that combines two elements. kSumF32: an f32 sum. kSumEach: an f32 sum that is rounded to the type after
// each addition. kMax: the maximum.
enum class Fold { kSumF32, kSumEach, kMax };

// Maps a float to an integer with the same order: -0 is below +0, and every NaN is below all other values. `inOrder` is
// the inverse.
__device__ inline int32_t orderOf(float x) {
  const int32_t bits = __float_as_int(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return INT32_MIN;
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}

__device__ inline float inOrder(int32_t order) {
  if (order == INT32_MIN) return __int_as_float(0x7fffffff);
  return __int_as_float(order >= 0 ? order : order ^ 0x7fffffff);
}

template <Wide type, Fold fold>
__device__ inline float combine(float a, float b) {
  if constexpr (fold == Fold::kMax) return inOrder(max(orderOf(a), orderOf(b)));
  const float sum = a + b;
  return fold == Fold::kSumEach ? rounded(type, sum) : sum;
}

// The last step: a mean multiplies the rounded sum by p.factor.
template <Wide type>
__device__ inline float scaleTotal(const FoldParams& p, float total) {
  return p.factor == 1.0f ? total : rounded(type, total) * p.factor;
}

template <Wide type>
__device__ inline const void* partAt(const FoldParams& p, int64_t i) {
  constexpr int64_t kBytes = sizeof(typename WideOf<type>::Storage);
  if (p.own && i == p.ownAt) return p.own;
  const int64_t partIndex = p.own && i > p.ownAt ? i - 1 : i;
  return static_cast<const uint8_t*>(p.parts) + partIndex * p.stride * kBytes;
}

// 16 bytes of a part. Each part is read only once, so the loads bypass the caches.
struct Sixteen {
  uint4 bits;
  __device__ static Sixteen load(const void* part, int64_t index) {
    return {__ldcs(static_cast<const uint4*>(part) + index)};
  }
};

template <Wide type>
constexpr int kInSixteen = 16 / sizeof(typename WideOf<type>::Storage);

template <Wide type>
__device__ inline void unpack(const Sixteen& pack, float (&values)[kInSixteen<type>]) {
  const uint32_t words[4] = {pack.bits.x, pack.bits.y, pack.bits.z, pack.bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (type == Wide::kF32) {
      values[i] = __uint_as_float(words[i]);
    } else {
      values[2 * i] = WideOf<type>::load(static_cast<uint16_t>(words[i]));
      values[2 * i + 1] = WideOf<type>::load(static_cast<uint16_t>(words[i] >> 16));
    }
  }
}

template <Wide type>
__device__ inline void storeSixteen(void* out, int64_t index, const float (&values)[kInSixteen<type>]) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (type == Wide::kF32) {
      words[i] = __float_as_uint(values[i]);
    } else if constexpr (type == Wide::kBf16) {
      words[i] = bf16Pair(values[2 * i], values[2 * i + 1]);
    } else {
      words[i] = halfPair(values[2 * i], values[2 * i + 1]);
    }
  }
  storeBytes16(static_cast<uint4*>(out) + index, words[0], words[1], words[2], words[3]);
}

template <Wide type, Fold fold>
__device__ inline void add(float (&total)[kInSixteen<type>], const Sixteen& pack) {
  float values[kInSixteen<type>];
  unpack<type>(pack, values);
#pragma unroll
  for (int i = 0; i < kInSixteen<type>; ++i) total[i] = combine<type, fold>(total[i], values[i]);
}

// Combines 16 bytes of every part per thread. `rankCount` is the number of ranks, or 0 if it is known only at run time.
template <Wide type, Fold fold, int rankCount>
__global__ void __launch_bounds__(kFoldThreads) foldPacks(const FoldParams p) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kFoldThreads + threadIdx.x;
  if (index >= p.count / kInSixteen<type>) return;
  float total[kInSixteen<type>];
  if constexpr (rankCount > 0) {
    Sixteen packs[rankCount];
#pragma unroll
    for (int i = 0; i < rankCount; ++i) packs[i] = Sixteen::load(partAt<type>(p, i), index);
    unpack<type>(packs[0], total);
#pragma unroll
    for (int i = 1; i < rankCount; ++i) add<type, fold>(total, packs[i]);
  } else {
    unpack<type>(Sixteen::load(partAt<type>(p, 0), index), total);
#pragma unroll 4
    for (int64_t i = 1; i < p.ranks; ++i) add<type, fold>(total, Sixteen::load(partAt<type>(p, i), index));
  }
#pragma unroll
  for (int i = 0; i < kInSixteen<type>; ++i) total[i] = scaleTotal<type>(p, total[i]);
  storeSixteen<type>(p.out, index, total);
}

// Combines elements [first, p.count), one element per thread.
template <Wide type, Fold fold>
__global__ void __launch_bounds__(kFoldThreads) foldElements(const FoldParams p, int64_t first) {
  const int64_t index = first + static_cast<int64_t>(blockIdx.x) * kFoldThreads + threadIdx.x;
  if (index >= p.count) return;
  float total = loadElement(partAt<type>(p, 0), type, index);
#pragma unroll 4
  for (int64_t i = 1; i < p.ranks; ++i) {
    total = combine<type, fold>(total, loadElement(partAt<type>(p, i), type, index));
  }
  storeElement(p.out, type, index, scaleTotal<type>(p, total));
}

template <Wide type, Fold fold>
void launchPacks(const FoldParams& p, unsigned blocks, cudaStream_t stream) {
  switch (p.ranks) {
    case 2:
      return foldPacks<type, fold, 2><<<blocks, kFoldThreads, 0, stream>>>(p);
    case 4:
      return foldPacks<type, fold, 4><<<blocks, kFoldThreads, 0, stream>>>(p);
    case 8:
      return foldPacks<type, fold, 8><<<blocks, kFoldThreads, 0, stream>>>(p);
    default:
      return foldPacks<type, fold, 0><<<blocks, kFoldThreads, 0, stream>>>(p);
  }
}

bool isAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

template <Wide type, Fold fold>
void launch(const FoldParams& p, cudaStream_t stream) {
  constexpr int64_t kPerPack = kInSixteen<type>;
  const bool isPacked = isAligned(p.parts) && isAligned(p.own) && isAligned(p.out) && p.stride % kPerPack == 0;
  const int64_t packs = isPacked ? p.count / kPerPack : 0;
  if (packs > 0) launchPacks<type, fold>(p, static_cast<unsigned>(ceilDivide(packs, kFoldThreads)), stream);
  const int64_t rest = p.count - packs * kPerPack;
  if (rest > 0) {
    foldElements<type, fold>
        <<<static_cast<unsigned>(ceilDivide(rest, kFoldThreads)), kFoldThreads, 0, stream>>>(p, packs * kPerPack);
  }
}

}  // namespace

cudaError_t launchFold(const FoldParams& p, cudaStream_t stream) {
  if (p.count == 0) return cudaSuccess;
  withWide(p.type, [&](auto tag) {
    constexpr Wide type = tag.value;
    if (p.maximum) return launch<type, Fold::kMax>(p, stream);
    if (type != Wide::kF32 && p.sumType == type) return launch<type, Fold::kSumEach>(p, stream);
    return launch<type, Fold::kSumF32>(p, stream);
  });
  return cudaGetLastError();
}

}  // namespace lockstep
