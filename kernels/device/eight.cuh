// Element-wise kernels in which a thread processes eight consecutive elements. Eight elements share one Philox draw, and their
// codes fill whole bytes at any code width.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/core/minifloat.cuh"
#include "kernels/device/device.cuh"

namespace lockstep {

// A buffer of 4, 8, 16 or 32 bytes in registers, loaded and stored by the widest accesses. Indices must be compile-time
// constants, or the compiler moves the buffer to memory.
template <int size>
struct Bytes {
  uint32_t words[size / 4];

  __device__ static Bytes load(const void* from) {
    Bytes result;
    if constexpr (size == 4) {
      result.words[0] = *static_cast<const uint32_t*>(from);
    } else if constexpr (size == 8) {
      const uint2 pair = *static_cast<const uint2*>(from);
      result.words[0] = pair.x;
      result.words[1] = pair.y;
    } else {
#pragma unroll
      for (int i = 0; i < size / 16; ++i) {
        const uint4 four = static_cast<const uint4*>(from)[i];
        result.words[4 * i] = four.x;
        result.words[4 * i + 1] = four.y;
        result.words[4 * i + 2] = four.z;
        result.words[4 * i + 3] = four.w;
      }
    }
    return result;
  }

  // Loads the first `count` bytes and sets the rest to zero.
  __device__ static Bytes loadSome(const void* from, int count) {
    Bytes result{};
#pragma unroll
    for (int i = 0; i < size; ++i) {
      if (i < count) result.words[i / 4] |= static_cast<uint32_t>(static_cast<const uint8_t*>(from)[i]) << 8 * (i % 4);
    }
    return result;
  }

  __device__ void store(void* to) const {
    if constexpr (size == 4) {
      *static_cast<uint32_t*>(to) = words[0];
    } else if constexpr (size == 8) {
      *static_cast<uint2*>(to) = {words[0], words[1]};
    } else {
#pragma unroll
      for (int i = 0; i < size / 16; ++i) {
        static_cast<uint4*>(to)[i] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
      }
    }
  }

  // Stores the first `count` bytes, a whole number of elements. Elements of 16 or 32 bits are stored whole, others byte
  // by byte. (nvcc 13.0 compiles the truncation of a rounded f16 or bf16 value to a byte as a conversion of the value.)
  __device__ void storeSome(void* to, int count) const {
    using Part = std::conditional_t<size == 16, uint16_t, std::conditional_t<size == 32, uint32_t, uint8_t>>;
    constexpr int kBytes = sizeof(Part);
#pragma unroll
    for (int i = 0; i < size / kBytes; ++i) {
      const int offset = i * kBytes;
      if (offset < count) static_cast<Part*>(to)[i] = static_cast<Part>(words[offset / 4] >> 8 * (offset % 4));
    }
  }
};

// Returns element i of eight elements of `bits` bits (4, 8, 16 or 32).
template <int bits>
__device__ inline uint32_t elementOf(const Bytes<bits>& eight, int i) {
  const uint32_t word = eight.words[i * bits / 32];
  if constexpr (bits == 32) return word;
  return word >> i * bits % 32 & ((1u << bits % 32) - 1);
}

// Writes element i by OR. The bits of that element must be zero beforehand.
template <int bits>
__device__ inline void setElement(Bytes<bits>& eight, int i, uint32_t element) {
  eight.words[i * bits / 32] |= element << i * bits % 32;
}

// The buffer for eight elements of a wide type: 16 or 32 bytes.
template <Wide type>
using WideEight = Bytes<type == Wide::kF32 ? 32 : 16>;

template <Wide type>
__device__ inline float wideAt(const WideEight<type>& eight, int i) {
  if constexpr (type == Wide::kF32) {
    return floatOf(eight.words[i]);
  } else {
    return WideOf<type>::load(static_cast<uint16_t>(elementOf<16>(eight, i)));
  }
}

// Converts eight f32 values to a wide type, each rounded once.
template <Wide type>
__device__ inline WideEight<type> wideEight(const float (&values)[8]) {
  WideEight<type> result{};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if constexpr (type == Wide::kF32) {
      result.words[i] = bitsOf(values[i]);
    } else {
      setElement<16>(result, i, WideOf<type>::store(values[i]));
    }
  }
  return result;
}

// Returns encode(x, word, kTiesToEven, kSaturate) of eight values, packed as a tensor stores them.
template <uint32_t word>
__device__ inline Bytes<storageBits(word)> encodeNearest8(const float (&x)[8]) {
  if constexpr (storageBits(word) == 4) {
    return {encodeNearest4<word>(x[0], x[1], x[2], x[3]) | encodeNearest4<word>(x[4], x[5], x[6], x[7]) << 16};
  } else if constexpr (storageBits(word) == 8) {
    return {encodeNearest4<word>(x[0], x[1], x[2], x[3]), encodeNearest4<word>(x[4], x[5], x[6], x[7])};
  } else {
    return {encodeNearest2<word>(x[0], x[1]), encodeNearest2<word>(x[2], x[3]), encodeNearest2<word>(x[4], x[5]),
            encodeNearest2<word>(x[6], x[7])};
  }
}

constexpr int kEightThreads = 256;

// out[i] = map(x[i]), in groups of eight elements; the last group may be partial. Map provides:
// - Params, with x, out and count; and a constructor from Params;
// - From and To, the Bytes of eight source and eight result elements (eight elements of n bits take n bytes);
// - kEights, the number of groups that a thread loads before it processes the first;
// - To operator()(const From&, int64_t eight), which maps group number `eight`.
template <typename Map>
__global__ void __launch_bounds__(kEightThreads) mapEights(const typename Map::Params p) {
  using From = typename Map::From;
  using To = typename Map::To;
  const Map map(p);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kEightThreads * Map::kEights) + threadIdx.x;
  const int64_t packs = p.count / 8;
  const int rest = static_cast<int>(p.count % 8);
  const auto* from = static_cast<const From*>(p.x);
  auto* to = static_cast<To*>(p.out);
  From sources[Map::kEights];
#pragma unroll
  for (int k = 0; k < Map::kEights; ++k) {
    const int64_t eight = first + k * kEightThreads;
    if (eight < packs) sources[k] = From::load(from + eight);
  }
#pragma unroll
  for (int k = 0; k < Map::kEights; ++k) {
    const int64_t eight = first + k * kEightThreads;
    if (eight < packs) {
      map(sources[k], eight).store(to + eight);
    } else if (eight == packs && rest > 0) {
      const From source = From::loadSome(from + eight, (rest * static_cast<int>(sizeof(From)) + 7) / 8);
      map(source, eight).storeSome(to + eight, (rest * static_cast<int>(sizeof(To)) + 7) / 8);
    }
  }
}

template <typename Map>
cudaError_t launchMap(const typename Map::Params& params, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceilDivide(params.count, 8 * kEightThreads * Map::kEights));
  if (blocks > 0) mapEights<Map><<<blocks, kEightThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace lockstep
