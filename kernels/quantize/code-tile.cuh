// A tile of 128 x 128 elements in the registers of a block of 256 threads, and its one-byte codes. The codes are stored
// both row by row and transposed. A chunk is 16 bytes of a row. In each pass a thread holds the chunks of four
// consecutive rows. It therefore has all four codes of each 32-bit word of the transposed codes, which are four rows of
// one column.
#pragma once

#include "kernels/core/minifloat.cuh"
#include "kernels/device/device.cuh"

namespace lockstep {

constexpr int kTile = 128;
constexpr int kTileWarps = kTileThreads / 32;
// 32-bit words of codes per column of a tile.
constexpr int kTileWords = kTile / 4;

// The source matrix, [rows, columns], and the position of a tile in it.
struct TileOrigin {
  int64_t rows;
  int64_t columns;
  int64_t row;
  int64_t column;
};

template <Wide type>
struct TileThread {
  using Storage = typename WideOf<type>::Storage;
  // The number of elements in a chunk of 16 bytes.
  static constexpr int kWidth = 16 / sizeof(Storage);
  // The number of 32-bit words that hold the one-byte codes of a chunk's elements.
  static constexpr int kWords = kWidth / 4;
  // The number of threads that share a row.
  static constexpr int kLanes = kTile / kWidth;
  static constexpr int kGroups = kTileThreads / kLanes;
  static constexpr int kPasses = kTileWords / kGroups;
  static constexpr int kRows = 4 * kPasses;

  __device__ static int lane() { return threadIdx.x % kLanes; }
  __device__ static int column() { return lane() * kWidth; }
  // The index, in a column of the tile, of the 32-bit word that holds the codes of this thread's four rows in pass
  // `pass`.
  __device__ static int word(int pass) { return pass * kGroups + threadIdx.x / kLanes; }
  // Returns the row of the tile in which this thread's row `i` lies.
  __device__ static int row(int i) { return word(i / 4) * 4 + i % 4; }
};

// Returns element `i` of a chunk of 16 bytes.
template <Wide type>
__device__ inline float element(const Bytes16& chunk, int i) {
  if constexpr (type == Wide::kF32) {
    return floatOf(chunk.words[i]);
  } else {
    return WideOf<type>::load(static_cast<uint16_t>(chunk.words[i / 2] >> (i % 2 * 16)));
  }
}

// Writes element `i` of a chunk of 16 bytes by OR. The bits of that element must be zero beforehand.
template <Wide type>
__device__ inline void putElement(Bytes16& chunk, int i, typename WideOf<type>::Storage value) {
  if constexpr (type == Wide::kF32) {
    chunk.words[i] = bitsOf(value);
  } else {
    chunk.words[i / 2] |= static_cast<uint32_t>(value) << (i % 2 * 16);
  }
}

// Returns encode(x, word, kTiesToEven, kSaturate) for a format of 8 bits, given by `word` or, if that is kAnyWord, by
// `anyWord`.
template <uint32_t word>
__device__ inline uint32_t encodeElement(float x, uint32_t anyWord) {
  if constexpr (word == kAnyWord) {
    return encode(x, anyWord, Rounding::kTiesToEven, Overflow::kSaturate, 0);
  } else {
    return encodeNearest<word>(x);
  }
}

// Returns the largest finite value of such a format.
template <uint32_t word>
__device__ inline float largestElement(uint32_t anyWord) {
  if constexpr (word == kAnyWord) {
    return decode(maxCode(anyWord), anyWord);
  } else {
    constexpr float kLargest = decode(maxCode(word), word);
    return kLargest;
  }
}

// Encodes scaled(x, i) for each element x of a 16-byte chunk; i is its index.
template <Wide type, uint32_t word, typename Scaled>
__device__ inline void encodeChunk(const Bytes16& chunk, Scaled scaled, uint32_t anyWord,
                                   uint32_t (&codes)[TileThread<type>::kWords]) {
  const auto pair = [&](int i) {
    const float low = scaled(element<type>(chunk, i), i);
    const float high = scaled(element<type>(chunk, i + 1), i + 1);
    if constexpr (word == kAnyWord) {
      return encodeElement<word>(low, anyWord) | encodeElement<word>(high, anyWord) << 8;
    } else {
      return convertPair<word>(high, low);
    }
  };
#pragma unroll
  for (int w = 0; w < TileThread<type>::kWords; ++w) codes[w] = pair(4 * w) | pair(4 * w + 2) << 16;
}

// Loads this thread's 16-byte chunks, row by row. Elements outside the source are 0. `whole` promises that the rows of
// the source consist of whole chunks.
template <Wide type, bool whole>
__device__ inline void loadChunks(const void* x, const TileOrigin& origin, Bytes16 (&chunks)[TileThread<type>::kRows]) {
  using Thread = TileThread<type>;
  const int64_t column = origin.column + Thread::column();
  const int64_t rowsLeft = column < origin.columns ? origin.rows - origin.row : 0;
  const typename Thread::Storage* from =
      static_cast<const typename Thread::Storage*>(x) + origin.row * origin.columns + column;
#pragma unroll
  for (int i = 0; i < Thread::kRows; ++i) {
    const int row = Thread::row(i);
    chunks[i] = {};
    if constexpr (whole) {
      if (row < rowsLeft) chunks[i] = *reinterpret_cast<const Bytes16*>(from + row * origin.columns);
    } else {
      const int64_t count = row < rowsLeft ? origin.columns - column : 0;
#pragma unroll
      for (int j = 0; j < Thread::kWidth; ++j) {
        if (j < count) putElement<type>(chunks[i], j, from[row * origin.columns + j]);
      }
    }
  }
}

// Writes the first `count` codes. If `whole`, writes all of them in one store.
template <int words>
__device__ inline void storeCodes(uint8_t* to, const uint32_t (&codes)[words], int64_t count, bool whole) {
  if (whole) {
    if constexpr (words == 2) {
      *reinterpret_cast<uint2*>(to) = make_uint2(codes[0], codes[1]);
    } else {
      *reinterpret_cast<uint32_t*>(to) = codes[0];
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 4 * words; ++j) {
    if (j < count) to[j] = static_cast<uint8_t>(codes[j / 4] >> (j % 4 * 8));
  }
}

// Writes the codes of row `i` of the thread if the source has that row.
template <Wide type, bool whole>
__device__ inline void storeRow(uint8_t* data, const TileOrigin& origin, int i,
                                const uint32_t (&codes)[TileThread<type>::kWords]) {
  using Thread = TileThread<type>;
  const int64_t row = origin.row + Thread::row(i);
  const int64_t column = origin.column + Thread::column();
  if (row >= origin.rows || column >= origin.columns) return;
  storeCodes(data + row * origin.columns + column, codes, origin.columns - column, whole);
}

// The transposed codes of a tile in shared memory, column by column. The words of a column are permuted (swizzled), so
// that neither writing nor reading has bank conflicts.
struct CodeTile {
  alignas(8) uint32_t words[kTile * kTileWords];

  // The index of a word. An even word and the next one stay adjacent.
  __device__ static int at(int column, int word) { return column * kTileWords + (word ^ (column >> 3) * 2); }
};

// Transposes 4 x 4 codes in four 32-bit words.
__device__ inline void transpose4(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  const uint32_t abLow = __byte_perm(a, b, 0x5140);
  const uint32_t abHigh = __byte_perm(a, b, 0x7362);
  const uint32_t cdLow = __byte_perm(c, d, 0x5140);
  const uint32_t cdHigh = __byte_perm(c, d, 0x7362);
  a = __byte_perm(abLow, cdLow, 0x5410);
  b = __byte_perm(abLow, cdLow, 0x7632);
  c = __byte_perm(abHigh, cdHigh, 0x5410);
  d = __byte_perm(abHigh, cdHigh, 0x7632);
}

// Writes the codes of one pass of the thread to the tile, transposed. `codes` has one row of codes for each of the four
// rows.
template <Wide type>
__device__ inline void putTransposed(CodeTile& tile, int pass, uint32_t (&codes)[4][TileThread<type>::kWords]) {
  using Thread = TileThread<type>;
  const int word = Thread::word(pass);
#pragma unroll
  for (int w = 0; w < Thread::kWords; ++w) {
    transpose4(codes[0][w], codes[1][w], codes[2][w], codes[3][w]);
#pragma unroll
    for (int j = 0; j < 4; ++j) tile.words[CodeTile::at(Thread::column() + 4 * w + j, word)] = codes[j][w];
  }
}

// Stores the tile to `data`, [columns, rows]. All threads of the block must have written their codes and synchronised.
__device__ inline void storeColumns(uint8_t* data, const TileOrigin& origin, const CodeTile& tile) {
  constexpr int kPairs = kTileWords / 2;
  const int pair = threadIdx.x % kPairs;
  const int64_t row = origin.row + 8 * pair;
  if (row >= origin.rows) return;
#pragma unroll
  for (int c = threadIdx.x / kPairs; c < kTile; c += kTileThreads / kPairs) {
    const int64_t column = origin.column + c;
    if (column >= origin.columns) return;
    const uint2 codes = *reinterpret_cast<const uint2*>(tile.words + CodeTile::at(c, 2 * pair));
    storeCodes(data + column * origin.rows + row, {codes.x, codes.y}, origin.rows - row, origin.rows % 8 == 0);
  }
}

}  // namespace lockstep
