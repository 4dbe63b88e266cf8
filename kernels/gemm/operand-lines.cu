// Stages operands (operand.h) that are stored along K. A unit is 16 bytes of the staged operand; one thread produces
// it.
#include "kernels/device/tile.cuh"
#include "kernels/gemm/operand.cuh"

namespace lockstep {

namespace {

// The number of 16-byte units of a line that a block stages; it stages 32 lines.
constexpr int kUnitsAcross = 32;
constexpr int kLinesDown = kStagingThreads / kUnitsAcross;
// The number of lines that a thread stages. Their loads are issued together.
constexpr int kUnroll = 4;

// One 16-byte unit of a staged operand: converts codes with block scales to bf16.
template <uint32_t word, uint32_t scaleWord>
struct ScaledCodes {
  static constexpr int kCount = 8;
  static constexpr int kBits = storageBits(word);
  static constexpr int kBytes = kBits * kCount / 8;
  uint32_t words[kBytes / 4];
  uint32_t scale;

  __device__ void load(const uint8_t* from, const uint8_t* scaleFrom) {
    if constexpr (kBytes == 4) {
      words[0] = *reinterpret_cast<const uint32_t*>(from);
    } else {
      const uint2 pair = *reinterpret_cast<const uint2*>(from);
      words[0] = pair.x;
      words[1] = pair.y;
    }
    scale = *scaleFrom;
  }

  __device__ float value(int i) const {
    constexpr int perWord = 32 / kBits;
    return decodeTo<word>(words[i / perWord] >> (i % perWord * kBits));
  }

  __device__ void store(void* to) const {
    const float factor = decodeScale(scaleWord, scale);
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = toBf16Pair(value(2 * i) * factor, value(2 * i + 1) * factor);
    store16(to, pairs[0], pairs[1], pairs[2], pairs[3]);
  }
};

// One 16-byte unit of a staged operand: rounds f32 to tf32.
struct RoundedFloats {
  static constexpr int kCount = 4;
  static constexpr int kBytes = 16;
  Bytes16 bits;

  __device__ void load(const uint8_t* from, const uint8_t*) { bits = *reinterpret_cast<const Bytes16*>(from); }

  __device__ void store(void* to) const {
    uint32_t rounded[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) rounded[i] = bitsOf(roundToTf32(floatOf(bits.words[i])));
    store16(to, rounded[0], rounded[1], rounded[2], rounded[3]);
  }
};

// One 16-byte unit of an operand whose codes are only padded.
template <int bits>
struct PaddedCodes {
  static constexpr int kCount = 128 / bits;
  static constexpr int kBytes = 16;
  Bytes16 codes;

  __device__ void load(const uint8_t* from, const uint8_t*) { codes = *reinterpret_cast<const Bytes16*>(from); }

  __device__ void store(void* to) const { store16(to, codes.words[0], codes.words[1], codes.words[2], codes.words[3]); }
};

// Units outside the source keep their initial zero bits, which convert to zeros.
template <typename Unit>
__global__ void __launch_bounds__(kStagingThreads)
    stageLinesKernel(const GemmOperandParams p, uint32_t lengthShift, uint32_t blocksAcross) {
  const int64_t unit = static_cast<int64_t>(blockIdx.x % blocksAcross) * kUnitsAcross + threadIdx.x % kUnitsAcross;
  const int64_t first =
      static_cast<int64_t>(blockIdx.x / blocksAcross) * (kLinesDown * kUnroll) + threadIdx.x / kUnitsAcross;
  if (unit * 16 >= p.outPitch) return;
  constexpr int64_t kAll = kLinesDown * kUnroll;
  const bool inside = unit * Unit::kCount < p.depth;
  const int linesLeft = inside ? static_cast<int>(min(p.lines - first, kAll)) : 0;
  const int outLeft = static_cast<int>(min(p.outLines - first, kAll));
  const int64_t pitch = p.depth / Unit::kCount * Unit::kBytes;
  const uint8_t* from = static_cast<const uint8_t*>(p.data) + first * pitch + unit * Unit::kBytes;
  const uint8_t* scales = static_cast<const uint8_t*>(p.scales.data) + first * p.scales.lineStride +
                          (unit * Unit::kCount >> lengthShift) * p.scales.blockStride;
  uint8_t* to = static_cast<uint8_t*>(p.out) + first * p.outPitch + unit * 16;

  Unit units[kUnroll] = {};
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (i * kLinesDown < linesLeft) units[i].load(from, scales);
    from += kLinesDown * pitch;
    scales += kLinesDown * p.scales.lineStride;
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (i * kLinesDown < outLeft) units[i].store(to);
    to += kLinesDown * p.outPitch;
  }
}

template <typename Unit>
cudaError_t launch(const GemmOperandParams& p, cudaStream_t stream) {
  const int64_t blocksAcross = ceilDivide(p.outPitch / 16, kUnitsAcross);
  const int64_t blocks = blocksAcross * ceilDivide(p.outLines, kLinesDown * kUnroll);
  if (blocks > 0x7fffffff) return cudaErrorInvalidValue;
  stageLinesKernel<Unit><<<static_cast<unsigned>(blocks), kStagingThreads, 0, stream>>>(
      p, shiftOf(p.scales.length), static_cast<uint32_t>(blocksAcross));
  return cudaGetLastError();
}

template <uint32_t word>
cudaError_t launchMx(const GemmOperandParams& p, cudaStream_t stream) {
  return launch<ScaledCodes<word, format::kE8m0>>(p, stream);
}

template <int bits>
std::optional<cudaError_t> launchPadded(const GemmOperandParams& p, cudaStream_t stream) {
  using Codes = PaddedCodes<bits>;
  if (p.depth % Codes::kCount != 0 || reinterpret_cast<uintptr_t>(p.data) % 16 != 0) return std::nullopt;
  return launch<Codes>(p, stream);
}

}  // namespace

std::optional<cudaError_t> launchGemmOperandLines(const GemmOperandParams& p, cudaStream_t stream) {
  if (p.transposed) return std::nullopt;
  if (p.staging == Staging::kPlain) {
    const uint32_t width = operandWidth(p.word);
    if (width == 8) return launchPadded<8>(p, stream);
    return width == 16 ? launchPadded<16>(p, stream) : std::nullopt;
  }
  if (p.staging == Staging::kTf32 && p.word == 0 && !p.scales.data && p.depth % RoundedFloats::kCount == 0) {
    return launch<RoundedFloats>(p, stream);
  }
  if (p.staging != Staging::kBf16 || !hasWholeGroups(p, 8)) return std::nullopt;
  if (p.scales.word == kUe4m3 && p.word == format::kE2m1) {
    return launch<ScaledCodes<format::kE2m1, kUe4m3>>(p, stream);
  }
  if (p.scales.word != format::kE8m0) return std::nullopt;
  switch (p.word) {
    case format::kE4m3:
      return launchMx<format::kE4m3>(p, stream);
    case format::kE5m2:
      return launchMx<format::kE5m2>(p, stream);
    case format::kE2m1:
      return launchMx<format::kE2m1>(p, stream);
    case format::kE2m3:
      return launchMx<format::kE2m3>(p, stream);
    case format::kE3m2:
      return launchMx<format::kE3m2>(p, stream);
    default:
      return std::nullopt;
  }
}

}  // namespace lockstep
