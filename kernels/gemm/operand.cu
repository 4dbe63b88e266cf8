#include <algorithm>

#include "kernels/device/tile.cuh"
#include "kernels/gemm/operand.cuh"

namespace lockstep {

namespace {

constexpr int kThreads = kStagingThreads;

// Stages any operand (operand.h), for formats and layouts that have no faster kernel. A block copies a tile of 64 lines
// by 64 k's through shared memory.

constexpr int kTile = 64;
// The number of 32-bit words per line of the tile. The padding makes accesses in both directions free of bank
// conflicts.
constexpr int kWords = kTile + 1;

// Returns the bits of the scale of line `line` and block `block`.
__device__ inline uint32_t loadScale(const GemmBlockScales& scales, int64_t line, uint32_t block) {
  const int64_t index = (line >> scales.lineShift) * scales.lineStride + block * scales.blockStride;
  if (scales.word == 0) return static_cast<const uint32_t*>(scales.data)[index];
  return static_cast<const uint8_t*>(scales.data)[index];
}

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

// Decodes a code. `table` holds the values of all codes if the format has up to 8 bits.
__device__ inline float valueOf(uint32_t code, uint32_t word, const float* table) {
  if (word == 0) return floatOf(code);
  if (storageBits(word) <= 8) return table[code & 255];
  if (word == format::kBf16) return floatOf(code << 16);
  if (word == format::kF16) return halfToFloat(static_cast<uint16_t>(code));
  return decode(code, word);
}

// Returns the staged element for the code of (line, k) as bits.
__device__ inline uint32_t stage(const GemmOperandParams& p, uint32_t code, int64_t line, int64_t k,
                                 const float* table) {
  if (p.staging == Staging::kPlain) return code;
  float value = valueOf(code, p.word, table);
  if (p.scales.data) {
    const uint32_t block = static_cast<uint32_t>(k) / p.scales.length;
    value *= decodeScale(p.scales.word, loadScale(p.scales, line, block));
  }
  if (p.staging == Staging::kBf16) return floatToBf16(value);
  return bitsOf(p.staging == Staging::kTf32 ? roundToTf32(value) : value);
}

// Stages one tile of one operand of the batch; blockIdx.x selects the tile. kWidth is the number of bits of a staged
// element.
template <int kWidth>
__device__ void stageTile(const GemmOperandParams& p, int64_t tilesAcross, uint32_t* codes, const float* table) {
  const int64_t firstLine = blockIdx.x / tilesAcross * kTile;
  const int64_t firstDepth = blockIdx.x % tilesAcross * kTile;
  const uint32_t width = operandWidth(p.word);
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
    const int along = i % kTile;
    const int across = i / kTile;
    const int l = p.transposed ? along : across;
    const int k = p.transposed ? across : along;
    const int64_t line = firstLine + l;
    const int64_t depth = firstDepth + k;
    if (line >= p.lines || depth >= p.depth) continue;
    codes[l * kWords + k] =
        p.transposed ? loadCode(p, width, depth, line, p.lines) : loadCode(p, width, line, depth, p.depth);
  }
  __syncthreads();

  // the number of elements that a thread stores along a line by one 16-byte store
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
      const uint32_t staged = stage(p, codes[l * kWords + k + j], line, depth, table);
      result.words[j / kPerWord] |= staged << (j % kPerWord * kWidth);
    }
    uint8_t* to = static_cast<uint8_t*>(p.out) + line * p.outPitch + offset;
    store16(to, result.words[0], result.words[1], result.words[2], result.words[3]);
  }
}

// blockIdx.y selects the operands of the batch.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) stageTilesKernel(const GemmOperandParams p, int64_t tilesAcross) {
  __shared__ uint32_t codes[kTile * kWords];
  __shared__ float table[256];
  if (operandWidth(p.word) <= 8) table[threadIdx.x] = decode(threadIdx.x, p.word);
  const int64_t rows = p.transposed ? p.depth : p.lines;
  const int64_t columns = p.transposed ? p.lines : p.depth;
  const int64_t bytes = rows * ((columns * operandWidth(p.word) + 7) / 8);
  GemmOperandParams one = p;
  for (int64_t item = blockIdx.y; item < p.batch; item += gridDim.y) {
    one.data = static_cast<const uint8_t*>(p.data) + item * bytes;
    one.out = static_cast<uint8_t*>(p.out) + item * p.outLines * p.outPitch;
    stageTile<kWidth>(one, tilesAcross, codes, table);
    __syncthreads();
  }
}

template <int kWidth>
cudaError_t launchTiles(const GemmOperandParams& p, cudaStream_t stream) {
  const int64_t tilesAcross = ceilDivide(p.outPitch * 8 / kWidth, kTile);
  const int64_t blocks = tilesAcross * ceilDivide(p.outLines, kTile);
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(std::min(p.batch, kMaxGridY)));
  stageTilesKernel<kWidth><<<grid, kThreads, 0, stream>>>(p, tilesAcross);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchGemmOperand(const GemmOperandParams& given, cudaStream_t stream) {
  if (given.outLines == 0 || given.outPitch == 0 || given.batch == 0) return cudaSuccess;
  GemmOperandParams p = given;
  p.scales.word &= ~kScaleSign;
  if (p.batch == 1) {
    if (const auto status = launchGemmOperandLines(p, stream)) return *status;
    if (const auto status = launchGemmOperandAcross(p, stream)) return *status;
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
