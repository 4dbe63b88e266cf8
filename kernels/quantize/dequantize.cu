// Dequantization, from a buffer of codes to another buffer. In dequantizeUntransposed, which keeps the orientation of
// the matrix, a warp writes 8 rows of 512 bytes. In dequantizeTransposed, a block transposes one tile of codes through
// shared memory.
#include "kernels/quantize/dequantize.h"

#include "kernels/core/minifloat.cuh"
#include "kernels/device/tile.cuh"
#include "kernels/quantize/taken.h"

namespace lockstep {

namespace {

template <Wide type>
using Storage = typename WideOf<type>::Storage;

// Elements in 16 bytes of output.
template <Wide type>
constexpr int kWidth = 16 / sizeof(Storage<type>);

// The unsigned type that holds the codes of 16 bytes of output.
template <int bytes>
struct CodesOf;
template <>
struct CodesOf<2> {
  using Type = uint16_t;
};
template <>
struct CodesOf<4> {
  using Type = uint32_t;
};
template <>
struct CodesOf<8> {
  using Type = uint64_t;
};

template <uint32_t word>
__device__ float valueOf(uint32_t code, uint32_t anyWord) {
  if constexpr (word == kAnyWord) {
    return decode(code, anyWord);
  } else {
    return decodeTo<word>(code);
  }
}

// Decodes the two lowest codes of `codes`.
template <uint32_t word>
__device__ void valuesOfPair(uint32_t codes, uint32_t anyWord, float& low, float& high) {
  if constexpr (word == format::kE4m3) {
    asm("{ .reg .b32 p; .reg .b16 l, h; cvt.rn.f16x2.e4m3x2 p, %2; mov.b32 {l, h}, p; "
        "cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(low), "=f"(high)
        : "h"(static_cast<uint16_t>(codes)));
  } else if constexpr (word == format::kE5m2) {
    asm("{ .reg .b32 p; .reg .b16 l, h; cvt.rn.f16x2.e5m2x2 p, %2; mov.b32 {l, h}, p; "
        "cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(low), "=f"(high)
        : "h"(static_cast<uint16_t>(codes)));
  } else {
    low = valueOf<word>(codes, anyWord);
    high = valueOf<word>(codes >> codeBits(word), anyWord);
  }
}

// Loads n (at most 8) scales, `step` apart. An index of `count` or more is replaced by the last scale.
template <typename Scale, int n>
__device__ void loadScales(const void* scales, int64_t first, int64_t step, int count, Scale (&loaded)[n]) {
  const Scale* scaleAddress = static_cast<const Scale*>(scales) + first;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    loaded[i] = *scaleAddress;
    if (i + 1 < count) scaleAddress += step;
  }
}

// Loads the factors of the codes in column `column` and rows row, row + 1, ..., row + count - 1. `count` is at most 8;
// factors beyond it are unspecified. `row` is a multiple of 8, so that the scales are in one line or, if swizzled, in
// consecutive lines of one tile.
template <bool divides, int n>
__device__ void loadFactors(const DequantizeParams& p, int64_t row, int64_t column, int count, float (&factors)[n]) {
  static_assert(n <= 8);
  const int64_t first = scaleOffset(p.scales, row >> p.lineShift, column >> p.blockShift);
  const int64_t step = p.lineShift > 0 ? 0 : p.scales.swizzled ? 16 : p.scales.lineStride;
  if (p.scaleWord == 0) {
    loadScales(p.scales.data, first, step, count, factors);
    return;
  }
  uint8_t codes[n];
  loadScales(p.scales.data, first, step, count, codes);
  const float amax = p.amax ? *p.amax : 1.0f;
  if constexpr (divides) {
#pragma unroll
    for (int i = 0; i < n; ++i) factors[i] = decodeTo<format::kE4m3>(codes[i]) / amax;
  } else if (p.scaleWord == format::kE8m0) {
#pragma unroll
    for (int i = 0; i < n; ++i) factors[i] = decodeTo<format::kE8m0>(codes[i]) * amax * p.inverse;
  } else if (p.scaleWord == format::kUe5m3) {
#pragma unroll
    for (int i = 0; i < n; ++i) factors[i] = decodeTo<format::kUe5m3>(codes[i]) * amax * p.inverse;
  } else {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float rowAmax = p.rowScaled ? p.amax[row + min(i, count - 1)] : amax;
      factors[i] = decodeTo<format::kE4m3>(codes[i]) * rowAmax * p.inverse;
    }
  }
}

// Returns the factor of one code.
template <bool divides>
__device__ float factorAt(const DequantizeParams& p, int64_t row, int64_t column) {
  float factor[1];
  loadFactors<divides>(p, row, column, 1, factor);
  return factor[0];
}

template <Wide type>
__device__ uint32_t roundedPair(float low, float high) {
  uint32_t pair;
  if constexpr (type == Wide::kBf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// Rounds values and stores them, 16 bytes at a time.
template <Wide type, int n>
__device__ void storeValues(Storage<type>* to, const float (&values)[n]) {
#pragma unroll
  for (int i = 0; i < n; i += kWidth<type>) {
    if constexpr (type == Wide::kF32) {
      store16(to + i, bitsOf(values[i]), bitsOf(values[i + 1]), bitsOf(values[i + 2]), bitsOf(values[i + 3]));
    } else {
      store16(to + i, roundedPair<type>(values[i], values[i + 1]), roundedPair<type>(values[i + 2], values[i + 3]),
              roundedPair<type>(values[i + 4], values[i + 5]), roundedPair<type>(values[i + 6], values[i + 7]));
    }
  }
}

// The number of rows that a thread processes.
constexpr int kRows = 8;

// Dequantizes without transposing, if rows of the output consist of whole 16 bytes. A thread writes 16 bytes of each of
// its rows.
template <uint32_t word, Wide type, bool across, bool divides>
__device__ void dequantizeVectors(const DequantizeParams& p, int64_t row, int64_t column) {
  constexpr int kBits = codeBits(word);
  using Codes = typename CodesOf<kWidth<type> * kBits / 8>::Type;
  if (column >= p.columns) return;
  const int rows = static_cast<int>(min(p.rows - row, static_cast<int64_t>(kRows)));
  const int64_t pitch = p.columns * kBits / 8;
  const uint8_t* from = static_cast<const uint8_t*>(p.codes) + row * pitch + column * kBits / 8;
  Codes codes[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    codes[r] = *reinterpret_cast<const Codes*>(from);
    if (r + 1 < rows) from += pitch;
  }

  constexpr int kFactors = across ? kWidth<type> : kRows;
  float factors[kFactors];
  if constexpr (across) {
    loadFactors<divides>(p, column, row, kFactors, factors);
  } else {
    loadFactors<divides>(p, row, column, rows, factors);
  }

  Storage<type>* out = static_cast<Storage<type>*>(p.out) + row * p.columns + column;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float values[kWidth<type>];
#pragma unroll
    for (int i = 0; i < kWidth<type>; i += 2) {
      const int shift = kBits * i;
      const uint32_t pair = static_cast<uint32_t>(codes[r] >> (shift / 32 * 32)) >> (shift % 32);
      valuesOfPair<word>(pair, p.word, values[i], values[i + 1]);
      values[i] *= factors[across ? i : r];
      values[i + 1] *= factors[across ? i + 1 : r];
    }
    if (r < rows) storeValues<type>(out + r * p.columns, values);
  }
}

// As dequantizeVectors, for rows of any length, one element at a time. A warp processes `columns` elements of each row,
// starting at `column`.
template <uint32_t word, Wide type, bool across, bool divides>
__device__ void dequantizeElements(const DequantizeParams& p, int64_t row, int64_t column, int columns) {
  constexpr int kBits = codeBits(word);
  const int64_t lastRow = min(row + kRows, p.rows);
  const int64_t lastColumn = min(column + columns, p.columns);
  for (int64_t r = row; r < lastRow; ++r) {
    for (int64_t c = column + threadIdx.x; c < lastColumn; c += 32) {
      const int64_t index = r * p.columns + c;
      const uint32_t byte = static_cast<const uint8_t*>(p.codes)[index * kBits / 8];
      const float value = valueOf<word>(kBits == 4 && index % 2 != 0 ? byte >> 4 : byte, p.word);
      const float factor = across ? factorAt<divides>(p, c, r) : factorAt<divides>(p, r, c);
      static_cast<Storage<type>*>(p.out)[index] = WideOf<type>::store(value * factor);
    }
  }
}

// A block has 8 warps. A warp writes 16 bytes per lane in each of 8 rows.
template <uint32_t word, Wide type, bool across, bool divides>
__global__ void __launch_bounds__(256) dequantizeUntransposed(DequantizeParams p, uint32_t tilesAcross) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x / tilesAcross) * 8 + threadIdx.y) * kRows;
  const int64_t column = static_cast<int64_t>(blockIdx.x % tilesAcross) * 32 * kWidth<type>;
  if (row >= p.rows) return;
  if (p.columns % kWidth<type> == 0) {
    dequantizeVectors<word, type, across, divides>(p, row, column + threadIdx.x * kWidth<type>);
  } else {
    dequantizeElements<word, type, across, divides>(p, row, column, 32 * kWidth<type>);
  }
}

// Dequantizes and transposes through a tile of codes in shared memory. A thread reads the same 32-bit word of 8 rows.
// Each code in the word belongs to one output row, and the thread writes 8 consecutive values of each of these rows.
template <uint32_t word, Wide type, bool divides>
__global__ void __launch_bounds__(kTileThreads) dequantizeTransposed(DequantizeParams p, uint32_t tilesAcross) {
  constexpr int kTileRows = 64;
  constexpr int kBits = codeBits(word);
  __shared__ uint32_t tile[kTileRows * kTilePitch];
  const int64_t firstRow = static_cast<int64_t>(blockIdx.x / tilesAcross) * kTileRows;
  const int64_t firstByte = static_cast<int64_t>(blockIdx.x % tilesAcross) * kTileBytes;
  loadTile<uint8_t, kTileRows>(tile, p.codes, p.rows, p.columns * kBits / 8, firstRow, firstByte);
  __syncthreads();

  const int inRow = threadIdx.x % 4 + threadIdx.x / 32 % 2 * 4;
  const int inColumn = threadIdx.x % 32 / 4 + threadIdx.x / 64 * 8;
  const int64_t row = firstRow + inRow * kRows;
  const int64_t column = (firstByte + inColumn * 4) * 8 / kBits;
  if (row >= p.rows || column >= p.columns) return;
  const int rows = static_cast<int>(min(p.rows - row, static_cast<int64_t>(kRows)));
  const int columns = static_cast<int>(min(p.columns - column, static_cast<int64_t>(32 / kBits)));
  uint32_t codes[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) codes[r] = tile[(inRow * kRows + r) * kTilePitch + inColumn];
  float factors[kRows];
  loadFactors<divides>(p, row, column, rows, factors);

  Storage<type>* out = static_cast<Storage<type>*>(p.out) + column * p.rows + row;
  if (p.rows % kRows == 0) {
#pragma unroll
    for (int c = 0; c < 32 / kBits; c += 2) {
      float values[2][kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        valuesOfPair<word>(codes[r] >> (kBits * c), p.word, values[0][r], values[1][r]);
        values[0][r] *= factors[r];
        values[1][r] *= factors[r];
      }
      if (c < columns) storeValues<type>(out + c * p.rows, values[0]);
      if (c + 1 < columns) storeValues<type>(out + (c + 1) * p.rows, values[1]);
    }
  } else {
    for (int c = 0; c < columns; ++c) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r >= rows) break;
        out[c * p.rows + r] = WideOf<type>::store(valueOf<word>(codes[r] >> (kBits * c), p.word) * factors[r]);
      }
    }
  }
}

template <uint32_t word, Wide type, bool divides = false>
cudaError_t launch(const DequantizeParams& p, cudaStream_t stream) {
  const int64_t across =
      p.transposed ? ceilDivide(p.columns * codeBits(word), kTileBytes * 8) : ceilDivide(p.columns, 32 * kWidth<type>);
  const int64_t tiles = across * ceilDivide(p.rows, 64);
  if (tiles > INT32_MAX) return cudaErrorInvalidValue;
  const uint32_t grid = static_cast<uint32_t>(tiles);
  const dim3 block(32, 8);
  if (p.transposed) {
    dequantizeTransposed<word, type, divides><<<grid, kTileThreads, 0, stream>>>(p, static_cast<uint32_t>(across));
  } else if (!p.across) {
    dequantizeUntransposed<word, type, false, divides><<<grid, block, 0, stream>>>(p, static_cast<uint32_t>(across));
  } else if constexpr (codeBits(word) == 8) {
    dequantizeUntransposed<word, type, true, divides><<<grid, block, 0, stream>>>(p, static_cast<uint32_t>(across));
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchDequantize(const DequantizeParams& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  if (!isTaken(p)) return cudaErrorInvalidValue;
  return withWide(p.outType, [&](auto type) {
    switch (p.word) {
      case format::kE4m3:
        return launch<format::kE4m3, type.value>(p, stream);
      case format::kE5m2:
        return launch<format::kE5m2, type.value>(p, stream);
      case format::kE2m1:
        return p.divides ? launch<format::kE2m1, type.value, true>(p, stream)
                         : launch<format::kE2m1, type.value>(p, stream);
      case format::kInt4:
        return launch<format::kInt4, type.value>(p, stream);
      default:
        return launch<kAnyWord, type.value>(p, stream);
    }
  });
}

}  // namespace lockstep
