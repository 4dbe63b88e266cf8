// Stages operands (operand.h) of 8-bit codes that are stored transposed, [depth, lines]. A block transposes tiles of
// 128 lines by 128 k's in shared memory.
#include "kernels/device/tile.cuh"
#include "kernels/gemm/operand.cuh"
#include "kernels/layout/layout.gen.h"

namespace lockstep {

namespace {

constexpr int kSide = 128;
// A row of the tile holds the codes of one k for 128 lines. It is copied in chunks of 16 bytes and read in 32-bit words
// of 4 codes.
constexpr int kChunks = kSide / 16;
constexpr int kRowWords = kSide / 4;
constexpr int kLoads = kSide * kChunks / kStagingThreads;
// A thread converts kGroup consecutive k's of four lines (a quad), and so writes 16 bytes of bf16 to each of these
// lines.
constexpr int kGroup = 8;
constexpr int kGroups = kSide / kGroup;
constexpr int kQuads = kSide / 4;
constexpr int kQuadStep = kStagingThreads / kGroups;
constexpr int kPasses = kQuads / kQuadStep;

// Word w of row k is stored at position w ^ 2 * (k / kGroup). A warp reads words of 16 groups of k's and of two groups
// of four lines at a time; this order makes the reads free of bank conflicts.
template <uint32_t word>
__global__ void __launch_bounds__(kStagingThreads)
    dequantizeAcrossKernel(const GemmOperandParams p, uint32_t lengthShift, uint32_t tilesAcross) {
  __shared__ Bytes16 tile[kSide * kChunks];
  const int64_t firstLine = static_cast<int64_t>(blockIdx.x / tilesAcross) * kSide;
  const int64_t firstDepth = static_cast<int64_t>(blockIdx.x % tilesAcross) * kSide;
  const int depthLeft = static_cast<int>(max(min(p.depth - firstDepth, int64_t{kSide}), int64_t{0}));
  const int linesLeft = static_cast<int>(max(min(p.lines - firstLine, int64_t{kSide}), int64_t{0}));
  const int outLeft = static_cast<int>(min(p.outLines - firstLine, int64_t{kSide}));

  const int chunk = threadIdx.x % kChunks;
  const int firstRow = threadIdx.x / kChunks;
  const int64_t step = kStagingThreads / kChunks * p.lines;
  const uint8_t* from =
      static_cast<const uint8_t*>(p.data) + (firstDepth + firstRow) * p.lines + firstLine + chunk * 16;
  const int rows = chunk * 16 < linesLeft ? depthLeft : 0;
  Bytes16 loaded[kLoads] = {};
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    if (firstRow + i * (kStagingThreads / kChunks) < rows) loaded[i] = *reinterpret_cast<const Bytes16*>(from);
    from += step;
  }

  const int group = threadIdx.x % kGroups;
  const int firstQuad = threadIdx.x / kGroups;
  const uint8_t* scaleFrom = static_cast<const uint8_t*>(p.scales.data) + firstLine + firstQuad * 4 +
                             (firstDepth + group * kGroup >> lengthShift) * p.scales.blockStride;
  uint32_t scales[kPasses] = {};
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int line = (firstQuad + pass * kQuadStep) * 4;
    if (group * kGroup < depthLeft && line < linesLeft) {
      scales[pass] = *reinterpret_cast<const uint32_t*>(scaleFrom + pass * (kQuadStep * 4));
    }
  }

#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int row = firstRow + i * (kStagingThreads / kChunks);
    const int rowGroup = row / kGroup;
    const bool odd = rowGroup % 2 != 0;
    const auto& words = loaded[i].words;
    tile[row * kChunks + (chunk ^ rowGroup / 2)] = {
        {odd ? words[2] : words[0], odd ? words[3] : words[1], odd ? words[0] : words[2], odd ? words[1] : words[3]}};
  }
  __syncthreads();

  const int64_t offset = (firstDepth + group * kGroup) * 2;
  if (offset >= p.outPitch) return;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int quad = firstQuad + pass * kQuadStep;
    const uint32_t* column =
        reinterpret_cast<const uint32_t*>(tile) + group * (kGroup * kRowWords) + (quad ^ group * 2);
    uint32_t words[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) words[i] = column[i * kRowWords];
    uint8_t* to = static_cast<uint8_t*>(p.out) + (firstLine + quad * 4) * p.outPitch + offset;
#pragma unroll
    for (int line = 0; line < 4; ++line) {
      const float scale = decodeTo<format::kE8m0>(scales[pass] >> line * 8);
      uint32_t pairs[kGroup / 2];
#pragma unroll
      for (int i = 0; i < kGroup / 2; ++i) {
        const uint32_t codes = __byte_perm(words[2 * i], words[2 * i + 1], line | (4 + line) << 4);
        pairs[i] = toBf16Pair(decodeTo<word>(codes) * scale, decodeTo<word>(codes >> 8) * scale);
      }
      if (quad * 4 + line < outLeft) store16(to, pairs[0], pairs[1], pairs[2], pairs[3]);
      to += p.outPitch;
    }
  }
}

template <uint32_t word>
cudaError_t launch(const GemmOperandParams& p, cudaStream_t stream) {
  const int64_t tilesAcross = ceilDivide(p.outPitch / 2, kSide);
  const int64_t blocks = tilesAcross * ceilDivide(p.outLines, kSide);
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  dequantizeAcrossKernel<word><<<static_cast<unsigned>(blocks), kStagingThreads, 0, stream>>>(
      p, shiftOf(p.scales.length), static_cast<uint32_t>(tilesAcross));
  return cudaGetLastError();
}

// Whether rows consist of whole 16-byte chunks, and the scales of four lines form an aligned 32-bit word.
bool isAligned(const GemmOperandParams& p) {
  return p.lines % 16 == 0 && p.scales.lineStride == 1 && p.scales.blockStride % 4 == 0;
}

}  // namespace

std::optional<cudaError_t> launchGemmOperandAcross(const GemmOperandParams& p, cudaStream_t stream) {
  if (!p.transposed) return std::nullopt;
  if (p.staging == Staging::kPlain && operandWidth(p.word) == 8 && p.outLines == p.lines && p.outPitch == p.depth) {
    return launchTranspose({p.data, p.out, 8, p.depth, p.lines, 1}, stream);
  }
  if (p.staging != Staging::kBf16 || !hasWholeGroups(p, kGroup) || p.scales.word != format::kE8m0 || !isAligned(p)) {
    return std::nullopt;
  }
  if (p.word == format::kE4m3) return launch<format::kE4m3>(p, stream);
  if (p.word == format::kE5m2) return launch<format::kE5m2>(p, stream);
  return std::nullopt;
}

}  // namespace lockstep
