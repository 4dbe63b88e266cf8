// Digests of an encoding. A call computes the digest of the codes of kSweepPatterns f32 bit patterns, starting at chunk *
// kSweepPatterns (assembly/cast/sweep.ts). The digest is two sums modulo 2^32, one for each of two constants k. A sum adds
// (code(i) + 1) * (mix(i, k) | 1) over the patterns i, where mix is x ^= x >> 16, x *= k, x ^= x >> 15. NaN counts as code 0xffff
// in formats stored in 16 bits. Stochastic rounding takes the random bits of element i of copy 0.
//
// Each thread encodes f32 bit patterns and adds up the terms of the digest. Each warp adds its sums to the result atomically.
// Formats for which the quantizers have a faster encoder are encoded by it, so that the digest covers that encoder.
#include "kernels/cast/sweep.gen.h"

#include "kernels/device/eight.cuh"

namespace lockstep {

namespace {

// The number of bit patterns that one call encodes; 256 calls cover all.
constexpr uint32_t kSweepPatterns = 1u << 24;
constexpr int kThreads = 256;
// The number of groups of eight patterns per thread.
constexpr int kEights = 8;
constexpr uint32_t kBlocks = kSweepPatterns / (8 * kThreads * kEights);

// The encoders under test. encode8 encodes x, the bit patterns 8 * eight to 8 * eight + 7. ByParams supports every format and
// rounding mode.
struct ByParams {
  __device__ static void encode8(const SweepParams& p, uint32_t eight, const float (&x)[8], uint32_t (&codes)[8]) {
    const uint4 draw = p.rounding == Rounding::kStochastic ? philox(eight, 0, p.random) : uint4{};
#pragma unroll
    for (int i = 0; i < 8; ++i) codes[i] = encode(x[i], p.word, p.rounding, p.overflow, castBits(draw, i));
  }
};

template <uint32_t word>
struct Nearest {
  __device__ static void encode8(const SweepParams&, uint32_t, const float (&x)[8], uint32_t (&codes)[8]) {
    const auto code = encodeNearest8<word>(x);
#pragma unroll
    for (int i = 0; i < 8; ++i) codes[i] = elementOf(code, i);
  }
};

template <uint32_t word>
struct Stochastic {
  __device__ static void encode8(const SweepParams& p, uint32_t eight, const float (&x)[8], uint32_t (&codes)[8]) {
    const uint4 draw = philox(eight, 0, p.random);
#pragma unroll
    for (int i = 0; i < 8; ++i) codes[i] = encodeStochastic<word>(x[i], castBits(draw, i));
  }
};

// Returns (code + 1) * (mix | 1), where mix is as in sweep.h. `folded` is the bit pattern after the first step of mix,
// which is the same for both constants k.
__device__ inline uint32_t term(uint32_t code, uint32_t folded, uint32_t k) {
  const uint32_t x = folded * k;
  return (code + 1) * ((x ^ x >> 15) | 1);
}

template <typename Encoder>
__global__ void __launch_bounds__(kThreads) sweepKernel(const SweepParams p) {
  const bool marksNaN = storageBits(p.word) == 16;
  uint32_t sum0 = 0;
  uint32_t sum1 = 0;
#pragma unroll 1
  for (int k = 0; k < kEights; ++k) {
    const uint32_t eight = p.chunk * (kSweepPatterns / 8) + (blockIdx.x * kEights + k) * kThreads + threadIdx.x;
    float x[8];
    uint32_t codes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = floatOf(8 * eight + i);
    Encoder::encode8(p, eight, x, codes);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t pattern = 8 * eight + i;
      const uint32_t code = marksNaN && x[i] != x[i] ? 0xffff : codes[i];
      const uint32_t folded = pattern ^ pattern >> 16;
      sum0 += term(code, folded, 0x7feb352d);
      sum1 += term(code, folded, 0x846ca68b);
    }
  }
  sum0 = __reduce_add_sync(kFullMask, sum0);
  sum1 = __reduce_add_sync(kFullMask, sum1);
  if (threadIdx.x % 32 == 0) {
    atomicAdd(p.out, sum0);
    atomicAdd(p.out + 1, sum1);
  }
}

template <typename Encoder>
cudaError_t sweepBy(const SweepParams& p, cudaStream_t stream) {
  sweepKernel<Encoder><<<kBlocks, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

cudaError_t sweepNearest(const SweepParams& p, cudaStream_t stream) {
  switch (p.word) {
    case format::kE4m3:
      return sweepBy<Nearest<format::kE4m3>>(p, stream);
    case format::kE5m2:
      return sweepBy<Nearest<format::kE5m2>>(p, stream);
    case format::kE2m1:
      return sweepBy<Nearest<format::kE2m1>>(p, stream);
    case format::kE2m3:
      return sweepBy<Nearest<format::kE2m3>>(p, stream);
    case format::kE3m2:
      return sweepBy<Nearest<format::kE3m2>>(p, stream);
    case format::kBf16:
      return sweepBy<Nearest<format::kBf16>>(p, stream);
    case format::kF16:
      return sweepBy<Nearest<format::kF16>>(p, stream);
    default:
      return sweepBy<ByParams>(p, stream);
  }
}

cudaError_t sweepStochastic(const SweepParams& p, cudaStream_t stream) {
  switch (p.word) {
    case format::kE4m3:
      return sweepBy<Stochastic<format::kE4m3>>(p, stream);
    case format::kE5m2:
      return sweepBy<Stochastic<format::kE5m2>>(p, stream);
    case format::kE2m1:
      return sweepBy<Stochastic<format::kE2m1>>(p, stream);
    case format::kE2m3:
      return sweepBy<Stochastic<format::kE2m3>>(p, stream);
    case format::kE3m2:
      return sweepBy<Stochastic<format::kE3m2>>(p, stream);
    default:
      return sweepBy<ByParams>(p, stream);
  }
}

}  // namespace

cudaError_t launchSweep(const SweepParams& p, cudaStream_t stream) {
  if (const cudaError_t error = cudaMemsetAsync(p.out, 0, 2 * sizeof(uint32_t), stream); error != cudaSuccess) {
    return error;
  }
  if (p.overflow != Overflow::kSaturate) return sweepBy<ByParams>(p, stream);
  if (p.rounding == Rounding::kTiesToEven) return sweepNearest(p, stream);
  return p.rounding == Rounding::kStochastic ? sweepStochastic(p, stream) : sweepBy<ByParams>(p, stream);
}

}  // namespace lockstep
