// Stand-ins for the project's own kernels of matrix products. The stand-in for staging operands copies codes and pads the
// matrices with rows of zeros.
#include <cstring>

#include "conformance/tests/stand-in/touch.h"
#include "kernels/gemm/calls.gen.h"
#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/operand.h"

using namespace standin;

namespace lockstep {

namespace {

// The number of elements up to the end of the last of `lines` lines, which start `pitch` elements apart.
int64_t extent(int64_t lines, int64_t length, int64_t pitch) { return lines == 0 ? 0 : (lines - 1) * pitch + length; }

void readsFactors(const GemmFactors& factors, int64_t scalesW = 1, int64_t scalesX = 1) {
  for (const float* each : {factors.amaxW, factors.amaxX}) readsF32(each, 1);
  readsF32(factors.scaleW, scalesW);
  readsF32(factors.scaleX, scalesX);
}

// Reads the first and the last scale.
void readsScales(const GemmBlockScales& scales, int64_t lines, int64_t depth) {
  const uint64_t bytes = scales.word == 0 ? 4 : 1;
  const int64_t last = ((lines - 1) >> scales.lineShift) * scales.lineStride + (depth - 1) / scales.length * scales.blockStride;
  reads(scales.data, bytes);
  reads(static_cast<const uint8_t*>(scales.data) + static_cast<uint64_t>(last) * bytes, bytes);
}

// Copies lines of `bytes` bytes, with zeros after each line and below the last one.
void copiesLines(const GemmOperandParams& p, int64_t bytes) {
  const auto* from = static_cast<const uint8_t*>(p.data);
  auto* to = static_cast<uint8_t*>(p.out);
  std::memset(to, 0, static_cast<size_t>(p.batch * p.outLines * p.outPitch));
  for (int64_t i = 0; i < p.batch * p.lines; ++i) {
    const int64_t line = i / p.lines * p.outLines + i % p.lines;
    std::memmove(to + line * p.outPitch, from + i * bytes, static_cast<size_t>(bytes));
  }
}

}  // namespace

cudaError_t launchGemmPlain(const GemmPlainParams& p, cudaStream_t stream) {
  on(stream);
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  readsF32(p.x, extent(p.batch * p.rows, p.depth, p.xPitch));
  readsF32(p.w, extent(p.batch * p.columns, p.depth, p.wPitch));
  writesF32(p.out, extent(p.batch * p.rows, p.columns, p.outPitch));
  return cudaSuccess;
}

cudaError_t launchGemmFewRows(const GemmFewRowsParams& p, cudaStream_t stream) {
  on(stream);
  if (p.columns == 0) return cudaSuccess;
  reads(p.x, static_cast<uint64_t>(p.rows * p.depth) * 2);
  reads(p.data, static_cast<uint64_t>(p.columns) * bytesOf(p.depth, operandWidth(p.word)));
  if (p.scales.data && p.depth > 0) readsScales(p.scales, p.columns, p.depth);
  readsFactors(p.factors);
  writesWide(p.out, p.outType, p.rows * p.columns);
  return cudaSuccess;
}

cudaError_t launchGemmOperand(const GemmOperandParams& p, cudaStream_t stream) {
  on(stream);
  if (p.outLines == 0 || p.outPitch == 0 || p.batch == 0) return cudaSuccess;
  const int64_t rows = p.transposed ? p.depth : p.lines;
  const int64_t columns = p.transposed ? p.lines : p.depth;
  const auto pitch = static_cast<int64_t>(bytesOf(columns, operandWidth(p.word)));
  reads(p.data, static_cast<uint64_t>(p.batch * rows * pitch));
  if (p.scales.data && p.lines > 0 && p.depth > 0) readsScales(p.scales, p.lines, p.depth);
  writes(p.out, static_cast<uint64_t>(p.batch * p.outLines * p.outPitch));
  if (p.staging == Staging::kPlain && !p.transposed) copiesLines(p, pitch);
  return cudaSuccess;
}

cudaError_t launchGemmEpilogue(const GemmEpilogueParams& p, cudaStream_t stream) {
  on(stream);
  const int64_t count = p.rows * p.columns;
  writesF32(p.amax, 1);
  if (count == 0) return cudaSuccess;
  if (p.sums) {
    const int64_t lines = p.rows + (p.rows - 1) / p.itemRows * p.sumsSkipped;
    readsF32(p.sums, extent(lines, p.columns, p.sumsPitch));
  }
  readsF32(p.amaxW, p.lineAmaxesW ? p.columns : 1);
  readsF32(p.amaxX, p.lineAmaxesX ? p.rows : 1);
  readsFactors(p.factors, p.linesW ? p.columns : 1, p.linesX ? p.rows : 1);
  if (p.beta != 0) readsWide(p.c, p.cType, count);
  readsWide(p.bias, p.biasType, p.columns);
  writes(p.out, bytesOf(count, gemmResultWidth(p.word)));
  return cudaSuccess;
}

cudaError_t launchGemmAlpha(const GemmAlphaParams& p, cudaStream_t stream) {
  on(stream);
  readsFactors(p.factors);
  writesF32(p.out, 2);
  return cudaSuccess;
}

}  // namespace lockstep
