// Matrix-product kernels of this library: conversion of operands, products in plain f32, and epilogues.
#include <algorithm>

#include "kernels/gemm/epilogue.h"
#include "kernels/gemm/operand.h"
#include "kernels/gemm/plain.h"
#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

// The number of elements from the first to the last element of `lines` lines. A line has `length` elements and starts
// `pitch` elements after the one before.
uint64_t extent(uint64_t lines, uint64_t length, uint64_t pitch) {
  return lines == 0 ? 0 : product({lines - 1, pitch}) + length;
}

template <typename Declared>
uint64_t multipleOf(const Call<Declared>& call, typename Call<Declared>::Count name, uint64_t step) {
  const uint64_t value = call.count(name);
  if (value % step == 0) return value;
  throw Failure{"ARGUMENT", std::string(name.text()) + " is not a multiple of " + std::to_string(step)};
}

void GemmPlain(const Call<calls::GemmPlain>& call) {
  const uint64_t batch = call.bounded("batch", INT32_MAX);
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  const uint64_t depth = call.count("depth");
  const uint64_t xPitch = multipleOf(call, "xPitch", 4);
  const uint64_t wPitch = multipleOf(call, "wPitch", 4);
  const uint64_t outPitch = call.count("outPitch");
  GemmPlainParams p{};
  p.x = call.pointer<const float>("x", bytesOf(extent(product({batch, rows}), depth, xPitch), 32));
  p.w = call.pointer<const float>("w", bytesOf(extent(product({batch, columns}), depth, wPitch), 32));
  p.xPitch = static_cast<int64_t>(xPitch);
  p.wPitch = static_cast<int64_t>(wPitch);
  p.batch = static_cast<int64_t>(batch);
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  p.depth = static_cast<int64_t>(depth);
  p.out = call.pointer<float>("out", bytesOf(extent(product({batch, rows}), columns, outPitch), 32));
  p.outPitch = static_cast<int64_t>(outPitch);
  call.check("gemmPlain", launchGemmPlain(p, call.stream()));
}

GemmBlockScales readScales(const Call<calls::GemmOperand>& call, uint64_t lines, uint64_t depth) {
  GemmBlockScales scales{};
  if (!call.has("scales.data")) return scales;
  const uint64_t lineStride = call.count("scales.lineStride");
  const uint64_t blockStride = call.count("scales.blockStride");
  scales.word = call.word("scales.word");
  scales.lineShift = static_cast<uint32_t>(call.bounded("scales.lineShift", 31));
  scales.length = static_cast<uint32_t>(call.bounded("scales.length", INT32_MAX));
  if (scales.length == 0) throw Failure{"ARGUMENT", "scales.length is 0"};
  if (scales.word != 0 && storageBits(scales.word) > 8)
    throw Failure{"ARGUMENT", "scales.word is a format of more than 8 bits"};
  scales.lineStride = static_cast<int64_t>(lineStride);
  scales.blockStride = static_cast<int64_t>(blockStride);
  uint64_t count = 0;
  if (lines > 0 && depth > 0) {
    count = product({(lines - 1) >> scales.lineShift, lineStride}) +
            product({(depth - 1) / scales.length, blockStride}) + 1;
  }
  scales.data = call.pointer("scales.data", bytesOf(count, scales.word == 0 ? 32 : 8));
  return scales;
}

void GemmOperand(const Call<calls::GemmOperand>& call) {
  const uint64_t lines = call.count("lines");
  const uint64_t depth = call.bounded("depth", INT32_MAX);
  const uint64_t outLines = call.count("outLines");
  const uint64_t outPitch = multipleOf(call, "outPitch", 16);
  GemmOperandParams p{};
  const uint64_t batch = call.bounded("batch", INT32_MAX);
  p.batch = static_cast<int64_t>(batch);
  p.word = call.word("word");
  p.transposed = call.flag("transposed");
  const uint64_t columns = p.transposed ? lines : depth;
  p.data = call.pointer("data", product({batch, p.transposed ? depth : lines, bytesOf(columns, operandWidth(p.word))}));
  p.lines = static_cast<int64_t>(lines);
  p.depth = static_cast<int64_t>(depth);
  p.scales = readScales(call, lines, depth);
  if (p.scales.data && batch > 1)
    throw Failure{"ARGUMENT", "scales were given for a batch of operands; only a batch of 1 can have them"};
  p.staging = call.member<Staging>("staging");
  if (p.staging == Staging::kGrouped) throw Failure{"ARGUMENT", "staging is kGrouped, which only the reference has"};
  p.out = call.pointer("out", product({batch, outLines, outPitch}));
  p.outLines = static_cast<int64_t>(outLines);
  p.outPitch = static_cast<int64_t>(outPitch);
  call.check("gemmOperand", launchGemmOperand(p, call.stream()));
}

// Reads the factors; scaleW and scaleX have `scalesW` and `scalesX` scales.
template <typename Declared>
GemmFactors readFactors(const Call<Declared>& call, uint64_t scalesW = 1, uint64_t scalesX = 1) {
  GemmFactors factors{};
  factors.alpha = call.f32("factors.alpha");
  factors.amaxW = call.template optional<const float>("factors.amaxW", sizeof(float));
  factors.amaxX = call.template optional<const float>("factors.amaxX", sizeof(float));
  factors.inverse = call.f32("factors.inverse");
  factors.scaleW = call.template optional<const float>("factors.scaleW", bytesOf(scalesW, 32));
  factors.scaleX = call.template optional<const float>("factors.scaleX", bytesOf(scalesX, 32));
  return factors;
}

void GemmEpilogue(const Call<calls::GemmEpilogue>& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.bounded("columns", INT32_MAX);
  const uint64_t sumsPitch = call.count("sumsPitch");
  const uint64_t count = product({rows, columns});
  GemmEpilogueParams p{};
  const uint64_t itemRows = call.count("itemRows");
  const uint64_t skipped = call.count("sumsSkipped");
  if (rows > 0 && (itemRows == 0 || rows % itemRows != 0))
    throw Failure{"ARGUMENT", "rows is not a multiple of itemRows"};
  const uint64_t lines = rows == 0 ? 0 : product({rows / itemRows - 1, skipped}) + rows;
  p.sums = call.optional<const float>("sums", bytesOf(extent(lines, columns, sumsPitch), 32));
  p.sumsPitch = static_cast<int64_t>(sumsPitch);
  p.sumsSkipped = static_cast<int64_t>(skipped);
  p.itemRows = static_cast<int64_t>(std::max<uint64_t>(itemRows, 1));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  p.linesW = call.flag("linesW");
  p.linesX = call.flag("linesX");
  if (p.linesX && rows != itemRows) throw Failure{"ARGUMENT", "linesX goes with one product, not with a batch"};
  p.factors = readFactors(call, p.linesW ? columns : 1, p.linesX ? rows : 1);
  if ((p.linesW && !p.factors.scaleW) || (p.linesX && !p.factors.scaleX))
    throw Failure{"ARGUMENT", "scales of lines were announced and not given"};
  p.lineAmaxesW = call.flag("lineAmaxesW");
  p.lineAmaxesX = call.flag("lineAmaxesX");
  if (p.lineAmaxesX && rows != itemRows)
    throw Failure{"ARGUMENT", "lineAmaxesX goes with one product, not with a batch"};
  p.amaxW = call.optional<const float>("amaxW", bytesOf(p.lineAmaxesW ? columns : 1, 32));
  p.amaxX = call.optional<const float>("amaxX", bytesOf(p.lineAmaxesX ? rows : 1, 32));
  if ((p.lineAmaxesW && !p.amaxW) || (p.lineAmaxesX && !p.amaxX))
    throw Failure{"ARGUMENT", "amaxes of lines were announced and not given"};
  p.beta = call.f32("beta");
  p.cType = call.wide("cType");
  if (p.beta != 0) p.c = call.pointer("c", bytesOf(count, bitsOf(p.cType)));
  p.split = call.flag("split");
  p.biasType = call.wide("biasType");
  p.bias = call.optional("bias", bytesOf(columns, bitsOf(p.biasType)));
  p.word = call.word("word");
  if (gemmResultWidth(p.word) == 0) throw Failure{"ARGUMENT", "word is not an output format of a product"};
  p.out = call.pointer("out", bytesOf(count, gemmResultWidth(p.word)));
  p.outScale = call.f32("outScale");
  p.amax = call.optional<float>("amax", sizeof(float));
  call.check("gemmEpilogue", launchGemmEpilogue(p, call.stream()));
}

void GemmAlpha(const Call<calls::GemmAlpha>& call) {
  GemmAlphaParams p{};
  p.factors = readFactors(call);
  p.beta = call.f32("beta");
  p.out = call.pointer<float>("out", 2 * sizeof(float));
  call.check("gemmAlpha", launchGemmAlpha(p, call.stream()));
}

}  // namespace

void registerGemmKernels(Napi::Env env, Napi::Object exports) {
  expose<GemmPlain>(env, exports);
  expose<GemmOperand>(env, exports);
  expose<GemmEpilogue>(env, exports);
  expose<GemmAlpha>(env, exports);
}

}  // namespace lockstep
