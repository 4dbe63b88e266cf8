// Products of a few bf16 rows with codes, on Hopper's tensor cores. A warp converts codes to bf16 in registers, so the weight is
// read from memory once, as codes.
#pragma once

#include <cuda_runtime.h>

#include "kernels/core/format.h"
#include "kernels/core/formats.gen.h"
#include "kernels/gemm/calls.gen.h"

namespace lockstep {

// The number of elements along K that are copied to shared memory at once. Every slice of K is a multiple of it.
constexpr int64_t kFewRowsStep = 128;
// The largest numbers of rows of x, and of slices of K.
constexpr int64_t kMaxFewRows = 64;
constexpr int64_t kMaxFewRowsSplits = 32;

// The format of e4m3 scales, whose sign is ignored.
constexpr uint32_t kUnsignedE4m3 = format::kE4m3 & ~0x100u;
static_assert(!isSigned(kUnsignedE4m3));

// Whether a kernel exists for codes of format `word` with a scale of format `scaleWord` (0 is f32) for each `length` elements. A
// `length` of 0 means no scales.
constexpr bool hasFewRows(uint32_t word, uint32_t scaleWord, uint32_t length) {
  if (word == format::kE2m1) {
    return (scaleWord == kUnsignedE4m3 && length == 16) || (scaleWord == format::kE8m0 && length == 32);
  }
  if (word != format::kE4m3) return false;
  return length == 0 || (scaleWord == format::kE8m0 && length == 32) || (scaleWord == 0 && length == 128);
}

// The kernels by the width of codes.
cudaError_t launchFewRowsFp4(const GemmFewRowsParams& p, cudaStream_t stream);
cudaError_t launchFewRowsFp8(const GemmFewRowsParams& p, cudaStream_t stream);

}  // namespace lockstep
