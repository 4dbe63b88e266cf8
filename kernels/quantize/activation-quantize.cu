// Activations quantized to per-tensor FP8. The gradient of a gated activation has two parts, dA and dG; every other
// result has one. A team of 256 threads computes a 128 x 128 tile of each part in registers and encodes it. A
// columnwise copy is transposed through shared memory, where each tile has a CodeTile.
#include "kernels/quantize/activation-quantize.gen.h"

#include <algorithm>

#include "kernels/quantize/activation-values.cuh"
#include "kernels/quantize/amax-out.cuh"
#include "kernels/quantize/code-tile.cuh"
#include "kernels/quantize/taken.h"

namespace lockstep {

namespace {

// In each pass a thread computes four rows of four elements, as TileThread does for f32.
using Thread = TileThread<Wide::kF32>;

__device__ uint32_t encodeQuad(uint32_t word, const float (&x)[kQuad], float scale) {
  const float a = x[0] * scale;
  const float b = x[1] * scale;
  const float c = x[2] * scale;
  const float d = x[3] * scale;
  return word == format::kE4m3 ? encodeNearest4<format::kE4m3>(a, b, c, d) : encodeNearest4<format::kE5m2>(a, b, c, d);
}

// The number of teams (of kTileThreads threads) per block, which share the block's tables. It is limited by registers
// and by the shared memory of Ada GPUs.
template <bool gated, bool backward, bool packed>
constexpr int kTeams = !packed || (gated && backward) ? 1
                       : gated || backward            ? 2
                                                      : 3;

__device__ void synchroniseTeam() {
  asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(kTileThreads) : "memory");
}

// Writes the rowwise copy, the columnwise copy or both. Each team of kTileThreads threads computes one tile at a time;
// for a gated gradient, one tile of dA and one of dG. If `tabled`, the activation is looked up in tables, which follow
// the tiles in shared memory.
template <bool gated, bool backward, bool packed>
__global__ void __launch_bounds__(kTileThreads* kTeams<gated, backward, packed>, packed&& gated&& backward ? 2 : 1)
    quantizeValues(const ActivationQuantizeTensorParams p, bool tabled) {
  constexpr int parts = kParts<gated, backward>;
  constexpr int teams = kTeams<gated, backward, packed>;
  // the loads of the next pass are issued ahead, unless that takes too many registers
  constexpr bool ahead = packed && parts == 1;
  extern __shared__ CodeTile memory[];
  CodeTile* tiles = memory + threadIdx.y * parts;
  float* tables = tabled ? reinterpret_cast<float*>(memory + teams * parts) : nullptr;
  const GatedForm& form = p.source.form;
  const QuantizeTensorParams& target = p.target;
  if (tabled) {
    fillTables<gated, backward>(tables, form);
    __syncthreads();
  }
  const float scale = *target.scale;
  if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) storeInverse(target, scale);
  const int64_t tileColumns = ceilDivide(form.columns, kTile);
  const auto count = static_cast<uint32_t>(tileColumns * ceilDivide(form.rows, kTile));
  float largest = 0;
  for (uint32_t tile = blockIdx.x * teams + threadIdx.y; tile < count; tile += gridDim.x * teams) {
    const uint32_t down = tile / static_cast<uint32_t>(tileColumns);
    const TileOrigin origin = {form.rows, form.columns, int64_t{down} * kTile, (tile - down * tileColumns) * kTile};
    const int64_t column = origin.column + Thread::column();
    const int64_t columnsLeft = origin.columns - column;
    Inputs<gated, backward, packed, 4> next;
    if (ahead) next.load(form, origin.row + Thread::row(0), column);
#pragma unroll 1
    for (int pass = 0; pass < Thread::kPasses; ++pass) {
      const int64_t row = origin.row + Thread::row(4 * pass);
      if (!ahead) next.load(form, row, column);
      const auto inputs = next;
      if (ahead && pass + 1 < Thread::kPasses) next.load(form, origin.row + Thread::row(4 * pass + 4), column);
      Quads<4> values[parts];
      compute(tables, form, inputs, values);
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        uint32_t codes[4][1];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          codes[i][0] = encodeQuad(target.word, values[part][i], scale);
          if (row + i >= origin.rows) continue;
#pragma unroll
          for (int j = 0; j < kQuad; ++j) {
            if (packed ? columnsLeft > 0 : j < columnsLeft) largest = fmaxf(largest, fabsf(values[part][i][j]));
          }
          if (target.rowwise == nullptr || columnsLeft <= 0) continue;
          uint8_t* to = target.rowwise + ((row + i) * parts + part) * origin.columns + column;
          storeCodes(to, codes[i], columnsLeft, packed);
        }
        if (target.columnwise != nullptr) putTransposed<Wide::kF32>(tiles[part], pass, codes);
      }
    }
    if (target.columnwise == nullptr) continue;
    synchroniseTeam();
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      storeColumns(target.columnwise + part * origin.columns * origin.rows, origin, tiles[part]);
    }
    synchroniseTeam();
  }
  if (target.amaxOut != nullptr) raiseAmax(target.amaxOut, largest);
}

template <bool gated, bool backward, bool packed>
cudaError_t launch(const ActivationQuantizeTensorParams& p, cudaStream_t stream) {
  constexpr int teams = kTeams<gated, backward, packed>;
  constexpr auto tileBytes = static_cast<uint32_t>(teams * kParts<gated, backward> * sizeof(CodeTile));
  const GatedForm& form = p.source.form;
  const bool tabled = packed && paysForTable(form);
  const uint32_t bytes = tileBytes + (tabled ? kTableBytes<gated, backward> : 0);
  int64_t blocks = ceilDivide(ceilDivide(form.rows, kTile) * ceilDivide(form.columns, kTile), teams);
  if (tabled) blocks = std::min<int64_t>(blocks, tableBlocks() * (teams == 1 ? 2 : 1));
  // an empty tensor also has one block, which writes 1 / scale
  const auto grid = static_cast<uint32_t>(std::max<int64_t>(blocks, 1));
  const auto kernel = quantizeValues<gated, backward, packed>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  kernel<<<grid, dim3(kTileThreads, teams), bytes, stream>>>(p, tabled);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launchActivationQuantizeTensor(const ActivationQuantizeTensorParams& p, cudaStream_t stream) {
  if (!isTaken(p)) return cudaErrorInvalidValue;
  cudaError_t error = cudaSuccess;
  withForm(p.source, [&](auto gated, auto backward) {
    error = isPacked(p.source.form) ? launch<gated.value, backward.value, true>(p, stream)
                                    : launch<gated.value, backward.value, false>(p, stream);
  });
  return error;
}

}  // namespace lockstep
