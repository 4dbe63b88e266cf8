// Stand-ins for elementwise kernels and for reductions to a few numbers. elements.gen.cc has the generated stand-ins. The
// stand-ins for layouts, and for values that a tensor scale divides, compute their results.
#include <cstring>

#include "conformance/tests/stand-in/touch.h"
#include "kernels/cast/cast.gen.h"
#include "kernels/cast/sweep.gen.h"
#include "kernels/core/format.h"
#include "kernels/device/device.cuh"
#include "kernels/device/fault.h"
#include "kernels/elementwise/activation.gen.h"
#include "kernels/elementwise/special-function.gen.h"
#include "kernels/layout/copy-slice.gen.h"
#include "kernels/layout/layout.gen.h"
#include "kernels/quantize/dequantize.h"
#include "kernels/quantize/hadamard.gen.h"
#include "kernels/quantize/taken.h"
#include "kernels/update/delayed-scaling.gen.h"
#include "kernels/update/grad-norm.gen.h"
#include "kernels/update/optimizer.gen.h"
#include "kernels/update/square-piece.h"

using namespace standin;

namespace lockstep {

cudaError_t launchFault(cudaStream_t) { return cudaErrorLaunchFailure; }

namespace {

template <typename Params>
cudaError_t activation(const Params& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.count);
  if constexpr (requires { p.grad; }) readsWide(p.grad, p.gradType, p.count);
  writesWide(p.out, p.outType, p.count);
  writesF32(p.amax, 1);
  return cudaSuccess;
}

template <typename Params>
cudaError_t gated(const Params& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, 2 * p.rows * p.columns);
  writesWide(p.out, p.outType, p.rows * p.columns);
  writesF32(p.amax, 1);
  return cudaSuccess;
}

template <typename Params>
cudaError_t gatedBackward(const Params& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, 2 * p.rows * p.columns);
  readsWide(p.grad, p.gradType, p.rows * p.columns);
  writesWide(p.out, p.outType, 2 * p.rows * p.columns);
  writesF32(p.amax, 1);
  return cudaSuccess;
}

}  // namespace

cudaError_t launchSpecialFunction(const SpecialFunctionParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.count);
  readsF32(p.y, p.count);
  writesWide(p.out, p.outType, p.count);
  return cudaSuccess;
}

cudaError_t launchActivation(const ActivationParams& p, cudaStream_t stream) { return activation(p, stream); }

cudaError_t launchActivationBackward(const ActivationBackwardParams& p, cudaStream_t stream) {
  return activation(p, stream);
}

cudaError_t launchGated(const GatedParams& p, cudaStream_t stream) { return gated(p, stream); }

cudaError_t launchGatedBackward(const GatedBackwardParams& p, cudaStream_t stream) { return gatedBackward(p, stream); }

cudaError_t launchClampedSwiglu(const ClampedSwigluParams& p, cudaStream_t stream) { return gated(p, stream); }

cudaError_t launchClampedSwigluBackward(const ClampedSwigluBackwardParams& p, cudaStream_t stream) {
  return gatedBackward(p, stream);
}

cudaError_t launchAmax(const AmaxParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.count);
  writesF32(p.out, 1);
  return cudaSuccess;
}

cudaError_t launchEncode(const EncodeParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.count);
  reads(p.words, bytesOf(p.count, 32));
  writes(p.out, bytesOf(p.count, storageBits(p.word)));
  return cudaSuccess;
}

cudaError_t launchDecode(const DecodeParams& p, cudaStream_t stream) {
  on(stream);
  reads(p.x, bytesOf(p.count, storageBits(p.word)));
  readsF32(p.scale, 1);
  writesWide(p.out, p.outType, p.count);
  return cudaSuccess;
}

cudaError_t launchSweep(const SweepParams& p, cudaStream_t stream) {
  on(stream);
  writes(p.out, 8);
  return cudaSuccess;
}

cudaError_t launchUpdateScales(const UpdateScalesParams& p, cudaStream_t stream) {
  on(stream);
  readsF32(p.amaxHistory, p.length * p.count);
  writesF32(p.amaxHistory, p.length * p.count);
  writesF32(p.scale, p.count);
  return cudaSuccess;
}

// Dequantizes e2m1 codes with e4m3 scales that the tensor scale divides.
static void divides(const DequantizeParams& p) {
  for (int64_t i = 0; i < p.rows * p.columns; ++i) {
    const int64_t row = i / p.columns;
    const int64_t column = i % p.columns;
    const uint32_t code = static_cast<const uint8_t*>(p.codes)[i / 2] >> (i % 2 * 4) & 15;
    const int64_t at = scaleOffset(p.scales, row >> p.lineShift, column >> p.blockShift);
    const float scale = decode(static_cast<const uint8_t*>(p.scales.data)[at], format::kE4m3);
    const float value = decode(code, format::kE2m1) * (scale / *p.amax);
    const int64_t to = p.transposed ? column * p.rows + row : i;
    withWide(p.outType, [&](auto type) {
      using Wide_ = WideOf<type.value>;
      static_cast<typename Wide_::Storage*>(p.out)[to] = Wide_::store(value);
    });
  }
}

cudaError_t launchDequantize(const DequantizeParams& p, cudaStream_t stream) {
  on(stream);
  const int64_t count = p.rows * p.columns;
  if (count == 0) return cudaSuccess;
  if (!isTaken(p)) return cudaErrorInvalidValue;
  reads(p.codes, bytesOf(count, static_cast<uint64_t>(codeBits(p.word))));
  const int64_t lines = (((p.across ? p.columns : p.rows) - 1) >> p.lineShift) + 1;
  const int64_t blocks = (((p.across ? p.rows : p.columns) - 1) >> p.blockShift) + 1;
  readsScales(p.scales, lines, blocks, p.scaleWord == 0 ? 4 : 1);
  readsF32(p.amax, p.rowScaled ? p.rows : 1);
  writesWide(p.out, p.outType, count);
  if (p.divides) divides(p);
  return cudaSuccess;
}

cudaError_t launchSquareSum(std::span<const SquareSumParams> list, cudaStream_t stream) {
  on(stream);
  for (const SquareSumParams& p : list) {
    readsWide(p.x, p.xType, p.count);
    writesF32(p.workspace, squarePieces(p.count));
    writesF32(p.out, 1);
  }
  return cudaSuccess;
}

cudaError_t launchPieceSums(const PieceSumsParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.count);
  writesF32(p.sums, squarePieces(p.count));
  return cudaSuccess;
}

cudaError_t launchSumPieces(const SumPiecesParams& p, cudaStream_t stream) {
  on(stream);
  readsF32(p.sums, p.count);
  writesF32(p.out, 1);
  return cudaSuccess;
}

cudaError_t launchClipFactor(const ClipFactorParams& p, cudaStream_t stream) {
  on(stream);
  readsF32(p.sums, p.count);
  writesF32(p.norm, 1);
  writesF32(p.factor, 1);
  return cudaSuccess;
}

cudaError_t launchHadamard(const HadamardParams& p, cudaStream_t stream) {
  on(stream);
  if (p.rows % 16 != 0) return cudaErrorInvalidValue;
  reads(p.x, bytesOf(p.rows * p.columns, 16));
  writes(p.out, bytesOf(p.rows * p.columns, 16));
  return cudaSuccess;
}

cudaError_t launchTranspose(const TransposeParams& p, cudaStream_t stream) {
  on(stream);
  const uint64_t bytes = bytesOf(p.batch * p.rows * p.columns, static_cast<uint64_t>(p.bits));
  reads(p.x, bytes);
  writes(p.out, bytes);
  return cudaSuccess;
}

cudaError_t launchSwapAxes(const SwapAxesParams& p, cudaStream_t stream) {
  on(stream);
  const uint64_t bytes = static_cast<uint64_t>(p.outer * p.p * p.middle * p.q * p.unit);
  reads(p.x, bytes);
  writes(p.out, bytes);
  return cudaSuccess;
}

cudaError_t launchCopySlice(const CopySliceParams& p, cudaStream_t stream) {
  on(stream);
  const int64_t length = p.count * p.unit;
  const int64_t read = p.xLength == 1 ? p.unit : length;
  // a run may begin at any byte: the kernel chooses an access size to which all runs are aligned
  for (int64_t o = 0; length > 0 && o < p.outer; ++o) {
    const auto* x = static_cast<const uint8_t*>(p.x) + (o * p.xLength + p.xFirst) * p.unit;
    auto* out = static_cast<uint8_t*>(p.out) + (o * p.outLength + p.outFirst) * p.unit;
    reads(x, 1);
    reads(x + read - 1, 1);
    writes(out, 1);
    writes(out + length - 1, 1);
  }
  return cudaSuccess;
}

cudaError_t launchRelayout(const RelayoutParams& p, cudaStream_t stream) {
  on(stream);
  readsScales(p.from, p.to.lines, p.to.blocks, p.unit);
  writesScales(p.to, p.to.lines, p.to.blocks, p.unit);
  const auto* from = static_cast<const uint8_t*>(p.from.data);
  auto* to = static_cast<uint8_t*>(p.to.data);
  if (p.to.clearBytes > 0) std::memset(to, 0, static_cast<size_t>(p.to.clearBytes));
  for (int64_t line = 0; line < p.to.lines; ++line) {
    for (int64_t block = 0; block < p.to.blocks; ++block) {
      std::memmove(to + scaleOffset(p.to, line, block) * p.unit, from + scaleOffset(p.from, line, block) * p.unit,
                   static_cast<size_t>(p.unit));
    }
  }
  return cudaSuccess;
}

template <typename Params>
static void step(const Params& p) {
  readsWide(p.grad, p.gradType, p.count);
  readsF32(p.gradScale, 1);
  readsF32(p.noop, 1);
  writesF32(p.parameter, p.count);
  writesWide(p.copy, p.copyType, p.count);
}

cudaError_t launchSgd(std::span<const SgdParams> list, cudaStream_t stream) {
  on(stream);
  for (const SgdParams& p : list) {
    step(p);
    writesF32(p.m, p.count);
  }
  return cudaSuccess;
}

cudaError_t launchAdamw(std::span<const AdamwParams> list, cudaStream_t stream) {
  on(stream);
  for (const AdamwParams& p : list) {
    step(p);
    writesF32(p.m, p.count);
    writesF32(p.v, p.count);
  }
  return cudaSuccess;
}

}  // namespace lockstep
