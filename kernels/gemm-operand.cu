#include "kernels/gemm-operand.h"

#include "kernels/device.cuh"
#include "kernels/minifloat.cuh"

namespace lockstep {

namespace {

constexpr int kThreads = 256;
// Codes that a thread turns into one 16-byte store of bf16.
constexpr int kGroup = 8;

// Of a format word: the format has a sign. A scale's is ignored.
constexpr uint32_t kSigned = 0x100;
constexpr uint32_t kUe4m3 = format::kE4m3 & ~kSigned;

// The number of the scale of (line, k).
__device__ inline int64_t scaleIndex(const GemmBlockScales& scales, int64_t line, uint32_t block) {
  return (line >> scales.lineShift) * scales.lineStride + block * scales.blockStride;
}

// The bits of scale number `index`, and the scale.
__device__ inline uint32_t loadScale(const GemmBlockScales& scales, int64_t index) {
  if (scales.word == 0) return static_cast<const uint32_t*>(scales.data)[index];
  return static_cast<const uint8_t*>(scales.data)[index];
}

__device__ inline float decodeScale(uint32_t word, uint32_t bits) {
  if (word == 0) return floatOf(bits);
  if (word == format::kE8m0) return decodeTo<format::kE8m0>(bits);
  return word == kUe4m3 ? decodeTo<format::kE4m3>(bits & 0x7f) : decode(bits, word);
}

__device__ inline uint32_t bf16Pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// `value` rounded to ten fraction bits, nearest even, overflow to infinity.
__device__ inline float roundToTf32(float value) {
  const uint32_t bits = bitsOf(value);
  return value != value ? value : floatOf((bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000);
}

// The fast kernel: lines of codes whose blocks are whole groups, to bf16. A block of threads has 32 groups of 32 lines.

constexpr int kGroupsAcross = 32;
constexpr int kLinesDown = kThreads / kGroupsAcross;
// Lines of a thread, loaded together.
constexpr int kUnroll = 4;

// One group as it lies in memory, and the value of its element i.
template <uint32_t word>
struct Group {
  uint32_t words[storageBits(word) * kGroup / 32];

  __device__ static Group load(const uint8_t* from) {
    Group group;
    if constexpr (storageBits(word) == 4) {
      group.words[0] = *reinterpret_cast<const uint32_t*>(from);
    } else {
      const uint2 pair = *reinterpret_cast<const uint2*>(from);
      group.words[0] = pair.x;
      group.words[1] = pair.y;
    }
    return group;
  }

  __device__ float value(int i) const {
    constexpr int bits = storageBits(word);
    constexpr int perWord = 32 / bits;
    return decodeTo<word>(words[i / perWord] >> (i % perWord * bits));
  }
};

template <uint32_t word, uint32_t scaleWord>
__global__ void __launch_bounds__(kThreads) dequantizeLinesKernel(const GemmOperandParams p, uint32_t lengthShift,
                                                                  uint32_t blocksAcross) {
  constexpr int kBytes = storageBits(word) * kGroup / 8;
  const int64_t group = static_cast<int64_t>(blockIdx.x % blocksAcross) * kGroupsAcross + threadIdx.x % kGroupsAcross;
  const int64_t first = static_cast<int64_t>(blockIdx.x / blocksAcross) * (kLinesDown * kUnroll) +
                        threadIdx.x / kGroupsAcross;
  if (group * 16 >= p.outPitch) return;
  const bool inside = group * kGroup < p.depth;
  const int64_t pitch = p.depth / kGroup * kBytes;
  const auto block = static_cast<uint32_t>(group * kGroup >> lengthShift);

  Group<word> codes[kUnroll] = {};
  uint32_t scales[kUnroll] = {};
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const int64_t line = first + i * kLinesDown;
    if (!inside || line >= p.lines) continue;
    codes[i] = Group<word>::load(static_cast<const uint8_t*>(p.data) + line * pitch + group * kBytes);
    scales[i] = static_cast<const uint8_t*>(p.scales.data)[scaleIndex(p.scales, line, block)];
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const int64_t line = first + i * kLinesDown;
    if (line >= p.outLines) break;
    const float scale = inside && line < p.lines ? decodeScale(scaleWord, scales[i]) : 0;
    Bytes16 result;
#pragma unroll
    for (int j = 0; j < kGroup / 2; ++j) {
      result.words[j] = bf16Pair(codes[i].value(2 * j) * scale, codes[i].value(2 * j + 1) * scale);
    }
    *reinterpret_cast<Bytes16*>(static_cast<uint8_t*>(p.out) + line * p.outPitch + group * 16) = result;
  }
}

// The general kernel: tiles of 64 lines by 64 k's through shared memory.

constexpr int kTile = 64;
// Words from line to line, so that neither direction meets a bank twice.
constexpr int kTilePitch = kTile + 1;

__device__ inline uint32_t loadCode(const GemmOperandParams& p, uint32_t width, int64_t row, int64_t column,
                                    int64_t columns) {
  const int64_t pitch = (columns * width + 7) / 8;
  const uint8_t* line = static_cast<const uint8_t*>(p.data) + row * pitch;
  switch (width) {
    case 4:
      return line[column >> 1] >> ((column & 1) * 4) & 15;
    case 8:
      return line[column];
    case 16:
      return reinterpret_cast<const uint16_t*>(line)[column];
    default:
      return reinterpret_cast<const uint32_t*>(line)[column];
  }
}

// The value of a code; `table` has those of codes of up to 8 bits.
__device__ inline float valueOf(uint32_t code, uint32_t word, const float* table) {
  if (word == 0) return floatOf(code);
  if (storageBits(word) <= 8) return table[code & 255];
  if (word == format::kBf16) return floatOf(code << 16);
  if (word == format::kF16) return halfToFloat(static_cast<uint16_t>(code));
  return decode(code, word);
}

// What is stored for a code of (line, k), as bits of the staged width.
__device__ inline uint32_t stage(const GemmOperandParams& p, uint32_t code, int64_t line, int64_t k,
                                 const float* table) {
  if (p.staging == Staging::kPlain) return code;
  float value = valueOf(code, p.word, table);
  if (p.scales.data) {
    const uint32_t block = static_cast<uint32_t>(k) / p.scales.length;
    value *= decodeScale(p.scales.word, loadScale(p.scales, scaleIndex(p.scales, line, block)));
  }
  if (p.staging == Staging::kBf16) return floatToBf16(value);
  return bitsOf(p.staging == Staging::kTf32 ? roundToTf32(value) : value);
}

// kWidth: bits of a staged element.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) stageTilesKernel(const GemmOperandParams p, int64_t tilesAcross) {
  __shared__ uint32_t codes[kTile * kTilePitch];
  __shared__ float table[256];
  const int64_t firstLine = blockIdx.x / tilesAcross * kTile;
  const int64_t firstDepth = blockIdx.x % tilesAcross * kTile;
  const uint32_t width = operandWidth(p.word);
  if (width <= 8) table[threadIdx.x] = decode(threadIdx.x, p.word);
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
    const int along = i % kTile;
    const int across = i / kTile;
    const int l = p.transposed ? along : across;
    const int k = p.transposed ? across : along;
    const int64_t line = firstLine + l;
    const int64_t depth = firstDepth + k;
    if (line >= p.lines || depth >= p.depth) continue;
    codes[l * kTilePitch + k] =
        p.transposed ? loadCode(p, width, depth, line, p.lines) : loadCode(p, width, line, depth, p.depth);
  }
  __syncthreads();

  // 16 bytes of a line at a time
  constexpr int kCount = 128 / kWidth;
  constexpr int kPerWord = 32 / kWidth;
  constexpr int kAcross = kTile / kCount;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kAcross; i += kThreads) {
    const int l = i / kAcross;
    const int k = i % kAcross * kCount;
    const int64_t line = firstLine + l;
    const int64_t offset = (firstDepth + k) / kCount * 16;
    if (line >= p.outLines || offset >= p.outPitch) continue;
    Bytes16 result = {};
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const int64_t depth = firstDepth + k + j;
      if (line >= p.lines || depth >= p.depth) continue;
      const uint32_t staged = stage(p, codes[l * kTilePitch + k + j], line, depth, table);
      result.words[j / kPerWord] |= staged << (j % kPerWord * kWidth);
    }
    *reinterpret_cast<Bytes16*>(static_cast<uint8_t*>(p.out) + line * p.outPitch + offset) = result;
  }
}

template <uint32_t word, uint32_t scaleWord>
cudaError_t launchLines(const GemmOperandParams& p, cudaStream_t stream) {
  const int64_t blocksAcross = ceilDivide(p.outPitch / 16, kGroupsAcross);
  const int64_t blocks = blocksAcross * ceilDivide(p.outLines, kLinesDown * kUnroll);
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  uint32_t lengthShift = 0;
  while (1u << lengthShift < p.scales.length) ++lengthShift;
  dequantizeLinesKernel<word, scaleWord><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      p, lengthShift, static_cast<uint32_t>(blocksAcross));
  return cudaGetLastError();
}

template <int kWidth>
cudaError_t launchTiles(const GemmOperandParams& p, cudaStream_t stream) {
  const int64_t tilesAcross = ceilDivide(p.outPitch * 8 / kWidth, kTile);
  const int64_t blocks = tilesAcross * ceilDivide(p.outLines, kTile);
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  stageTilesKernel<kWidth><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(p, tilesAcross);
  return cudaGetLastError();
}

// Whether every group lies in one block, and starts at a multiple of its own bytes.
bool hasWholeGroups(const GemmOperandParams& p) {
  const uint32_t length = p.scales.length;
  return !p.transposed && p.staging == Staging::kBf16 && p.scales.data && p.depth % kGroup == 0 &&
         length % kGroup == 0 && (length & (length - 1)) == 0;
}

}  // namespace

cudaError_t launchGemmOperand(const GemmOperandParams& given, cudaStream_t stream) {
  if (given.outLines == 0 || given.outPitch == 0) return cudaSuccess;
  GemmOperandParams p = given;
  p.scales.word &= ~kSigned;
  if (hasWholeGroups(p) && p.scales.word == kUe4m3 && p.word == format::kE2m1) {
    return launchLines<format::kE2m1, kUe4m3>(p, stream);
  }
  if (hasWholeGroups(p) && p.scales.word == format::kE8m0) {
    switch (p.word) {
      case format::kE4m3:
        return launchLines<format::kE4m3, format::kE8m0>(p, stream);
      case format::kE5m2:
        return launchLines<format::kE5m2, format::kE8m0>(p, stream);
      case format::kE2m1:
        return launchLines<format::kE2m1, format::kE8m0>(p, stream);
      case format::kE2m3:
        return launchLines<format::kE2m3, format::kE8m0>(p, stream);
      case format::kE3m2:
        return launchLines<format::kE3m2, format::kE8m0>(p, stream);
      default:
        break;
    }
  }
  switch (stagedWidth(p.staging, p.word)) {
    case 4:
      return launchTiles<4>(p, stream);
    case 8:
      return launchTiles<8>(p, stream);
    case 16:
      return launchTiles<16>(p, stream);
    default:
      return launchTiles<32>(p, stream);
  }
}

}  // namespace lockstep
