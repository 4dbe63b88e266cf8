// Activations quantized to MXFP8. A strip is 32 rows by 128 columns. The gradient of a gated activation has two parts,
// dA and dG; every other result has one. A warp computes a strip of each part into shared memory as bf16, and quantizes
// it by kernels/quantize/mx/strip.cuh.
#include "kernels/quantize/activation-quantize.gen.h"

#include <algorithm>

#include "kernels/quantize/activation-values.cuh"
#include "kernels/quantize/mx/strip.cuh"
#include "kernels/quantize/taken.h"

namespace lockstep {

namespace {

// The number of warps per block. Each warp has its own shared memory: one strip of 32 rows by 128 columns for each part
// of the result (dA and dG of a gated gradient, else one part).
constexpr int kWarps = 8;
constexpr int kFewWarps = 4;

// The strips of a warp (32 rows by 128 columns each): [part of the result][row][lane], where a lane has four bf16
// values.
template <int parts>
using Strips = uint2[parts][kBlock][32];

// The four columns of a strip (32 rows by 128 columns) that belong to one lane, row by row, in shared memory.
struct SharedRows {
  const uint2* first;

  __device__ uint2 operator[](int row) const { return first[row * 32]; }
};

// Writes the rowwise copy, the columnwise copy or both. Each warp computes a strip of 32 rows by 128 columns of each
// part of the result (dA and dG, or a single part) into shared memory and quantizes the strips from there. If `tabled`,
// the activation is looked up in tables, which follow the strips in shared memory.
template <bool gated, bool backward, uint32_t word>
__global__ void __launch_bounds__(kWarps * 32, (gated && backward) ? 1 : 2)
    quantizeValuesMx(const ActivationQuantizeMxParams p, bool tabled) {
  constexpr int parts = kParts<gated, backward>;
  // with two parts (dA and dG) there are registers for only 2 rows at a time
  constexpr int height = parts == 2 ? 2 : 4;
  extern __shared__ uint2 memory[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const uint32_t warps = blockDim.x / 32;
  Strips<parts>* strips = reinterpret_cast<Strips<parts>*>(memory);
  float* tables = tabled ? reinterpret_cast<float*>(strips + warps) : nullptr;
  Strips<parts>& warpStrips = strips[warp];
  const GatedForm& form = p.source.form;
  if (tabled) {
    fillTables<gated, backward>(tables, form);
    __syncthreads();
  }
  const auto stripColumns = static_cast<uint32_t>(ceilDivide(form.columns, kStripColumns));
  const uint32_t count = stripColumns * static_cast<uint32_t>(form.rows / kBlock);
  for (uint32_t strip = blockIdx.x * warps + warp; strip < count; strip += gridDim.x * warps) {
    const uint32_t down = strip / stripColumns;
    const int64_t row = int64_t{down} * kBlock;
    const int64_t column = int64_t{strip - down * stripColumns} * kStripColumns + lane * kQuad;
    Inputs<gated, backward, true, height> next;
    next.load(form, row, column);
#pragma unroll 1
    for (int first = 0; first < kBlock; first += height) {
      const auto inputs = next;
      if (first + height < kBlock) next.load(form, row + first + height, column);
      Quads<height> values[parts];
      compute(tables, form, inputs, values);
#pragma unroll
      for (int part = 0; part < parts; ++part) {
#pragma unroll
        for (int r = 0; r < height; ++r) {
          const float(&x)[kQuad] = values[part][r];
          warpStrips[part][first + r][lane] = make_uint2(bf16Pair(x[0], x[1]), bf16Pair(x[2], x[3]));
        }
      }
    }
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      const SharedRows rows{&warpStrips[part][0][lane]};
      const Strip<SharedRows> s{rows, row, column + part * form.columns, column < form.columns};
      quantizeStrip<word>(p.target, s);
    }
  }
}

// The maximum number of bytes of shared memory of a block.
uint32_t sharedRoom() {
  int device = 0;
  int bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return static_cast<uint32_t>(bytes);
}

template <bool gated, bool backward, uint32_t word>
cudaError_t launch(const ActivationQuantizeMxParams& p, cudaStream_t stream) {
  constexpr int parts = kParts<gated, backward>;
  constexpr uint32_t tableBytes = kTableBytes<gated, backward>;
  const GatedForm& form = p.source.form;
  uint32_t warps = kWarps;
  uint32_t bytes = warps * sizeof(Strips<parts>);
  const bool tabled = paysForTable(form) && bytes + tableBytes <= sharedRoom();
  int64_t blocks = ceilDivide(ceilDivide(form.columns, kStripColumns) * (form.rows / kBlock), warps);
  if (tabled) {
    bytes += tableBytes;
    blocks = std::min<int64_t>(blocks, tableBlocks() * (parts == 2 ? 1 : 2));
  } else {
    warps = kFewWarps;
    bytes = warps * sizeof(Strips<parts>);
    blocks *= kWarps / kFewWarps;
  }
  const auto kernel = quantizeValuesMx<gated, backward, word>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<uint32_t>(blocks), warps * 32, bytes, stream>>>(p, tabled);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchActivationQuantizeMx(const ActivationQuantizeMxParams& p, cudaStream_t stream) {
  const GatedForm& form = p.source.form;
  if (!isTaken(p)) return cudaErrorInvalidValue;
  if (cudaError_t error = prepareQuantizeMx(p.target, stream); error != cudaSuccess) return error;
  if (form.rows == 0 || form.columns == 0) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  withForm(p.source, [&](auto gated, auto backward) {
    error = p.target.word == format::kE4m3 ? launch<gated.value, backward.value, format::kE4m3>(p, stream)
                                           : launch<gated.value, backward.value, format::kE5m2>(p, stream);
  });
  return error;
}

}  // namespace lockstep
