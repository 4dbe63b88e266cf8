// The memory layout of the block scales of a quantized copy (rowwise or columnwise). A copy has `lines` lines of
// `blocks` blocks. A line of a rowwise copy is a row, or a row of tiles; a line of a columnwise copy is a column, or a
// column of tiles. Blocks are numbered along the line.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

struct ScalePlacement {
  void* data = nullptr;
  int64_t lines = 0;
  int64_t blocks = 0;
  // Strides between lines and between blocks, in elements. Unused if `swizzled`.
  int64_t lineStride = 0;
  int64_t blockStride = 0;
  // The scales use cuBLASLt's 128x4 layout of [lines, blocks] (docs/numerics.md 4.6).
  bool swizzled = false;
  // If the layout has padding, the size in bytes of the whole buffer, which is set to zero before scales are written;
  // else 0.
  int64_t clearBytes = 0;
};

// Sets the whole scale buffer to zero if the layout has padding.
inline cudaError_t clearPadding(const ScalePlacement& p, cudaStream_t stream) {
  return p.clearBytes > 0 ? cudaMemsetAsync(p.data, 0, p.clearBytes, stream) : cudaSuccess;
}

// The index in `data` of the scale of a block.
__host__ __device__ inline int64_t scaleOffset(const ScalePlacement& p, int64_t line, int64_t block) {
  if (!p.swizzled) return line * p.lineStride + block * p.blockStride;
  const int64_t tilesAcross = (p.blocks + 3) / 4;
  const int64_t tile = (line / 128) * tilesAcross + block / 4;
  return tile * 512 + (line % 32) * 16 + (line % 128) / 32 * 4 + block % 4;
}

}  // namespace lockstep
