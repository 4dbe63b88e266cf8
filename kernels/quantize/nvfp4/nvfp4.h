// NVFP4 quantization (docs/numerics.md §5): e2m1 codes, an e4m3 scale for each block of 16 elements, and one f32 amax
// for each copy; or ue5m3 scales and no amax (§5.12).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/contract.gen.h"
#include "kernels/core/matrix-part.h"
#include "kernels/core/random.cuh"
#include "kernels/layout/placement.h"

namespace lockstep {

// One copy, rowwise or columnwise: its packed codes, line by line, their scales, and the amax of the tensor or, by other rules
// than kTwoLevel, its scale. With `rowScaled`, `amax` has one element for each line.
struct Nvfp4Copy {
  // Null if the copy is not wanted.
  uint8_t* data = nullptr;
  ScalePlacement scales;
  // Null by a rule that hasUe5m3Scales.
  float* amax = nullptr;
  // If not null, this amax is used instead of the amax of the source.
  const float* givenAmax = nullptr;
  // If not null, stochastic rounding rounds each element by a word of its own, in the order of the codes (elementBits of
  // kernels/core/random.cuh). Both copies have words, or neither has.
  const uint32_t* words = nullptr;
};

struct QuantizeNvfp4Params {
  const void* x = nullptr;
  Wide type = Wide::kF32;
  // kTwoLevel, or a rule that hasTensorScale or hasUe5m3Scales (kernels/core/scale-kinds.h), which goes with neither the
  // Hadamard transform nor stochastic rounding nor 4over6.
  ScaleRule rule = ScaleRule::kTwoLevel;
  // Multiples of 16.
  int64_t rows = 0;
  int64_t columns = 0;
  // The rowwise copy has codes for [rows, columns], the columnwise copy for the transpose, [columns, rows].
  Nvfp4Copy rowwise;
  Nvfp4Copy columnwise;
  // Whether blocks have 16x16 elements; otherwise 1x16. The scale of a 16x16 block is stored for each of its 16 lines.
  bool square = false;
  // Whether columnwise values first go through the random Hadamard transform. Bit i of `signs` negates row i of each 16
  // rows. bf16 only.
  bool transforms = false;
  uint32_t signs = 0;
  // Whether elements are rounded stochastically; otherwise to nearest even.
  bool stochastic = false;
  Philox random;
  // 4over6: the scale of each block maps its amax to 6 or to 4, whichever gives the smaller squared (`squaredError`) or
  // absolute error.
  bool fourOverSix = false;
  bool squaredError = false;
  // The sum of the bits of ElementScaling by which elements are scaled, of kDivides and kAddsZero. 0 is one multiplication, the
  // only scaling of kTwoLevel.
  uint16_t scaling = 0;
  // The largest block scale: 448 or 256.
  float e4m3Max = 448;
  // Whether each line of a copy has an amax of its own in place of the tensor's (§5.9). By kTwoLevel alone, in 1x16 blocks, with
  // neither the transform nor stochastic rounding nor given amaxes.
  bool rowScaled = false;
  // If not null and the value is exactly 1, nothing is written.
  const float* noop = nullptr;
  // With stochastic rounding: the matrix whose elements have the random bits of this one's.
  MatrixPart part;
};

// Returns cudaErrorInvalidValue if sizes, placements, amaxes, rule, scaling or rowScaled are not as described above, if the
// Hadamard transform is requested for a source that is not bf16 or for square blocks, and if 4over6 is requested together with
// the transform or with stochastic rounding.
cudaError_t launchQuantizeNvfp4(const QuantizeNvfp4Params& params, cudaStream_t stream);

// The passes of launchQuantizeNvfp4. launchNvfp4Amaxes runs first. Then one of the others computes codes and scales:
// launchNvfp4FourOverSix with 4over6, else launchNvfp4Codes. The latter calls launchNvfp4Rows for a rowwise copy only, in 1x16
// blocks, if there are fewer than 2^32 blocks.
cudaError_t launchNvfp4Amaxes(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4Codes(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4Rows(const QuantizeNvfp4Params& params, cudaStream_t stream);
cudaError_t launchNvfp4FourOverSix(const QuantizeNvfp4Params& params, cudaStream_t stream);

// As launchQuantizeNvfp4, with an amax for each line. The padding of the scales must be zero.
cudaError_t launchNvfp4RowScaled(const QuantizeNvfp4Params& params, cudaStream_t stream);

// As launchQuantizeNvfp4, under rules other than kTwoLevel. The padding of the scales must be zero.
cudaError_t launchNvfp4Any(const QuantizeNvfp4Params& params, cudaStream_t stream);

}  // namespace lockstep
