// Stand-ins for the quantization kernels.
#include <algorithm>

#include "conformance/tests/stand-in/any-rules.h"
#include "conformance/tests/stand-in/touch.h"
#include "kernels/quantize/bias-grad-quantize.gen.h"
#include "kernels/quantize/taken.h"
#include "kernels/rows/column-sum.h"

using namespace standin;

namespace lockstep {

namespace {

void writesTensor(const QuantizeTensorParams& p) {
  const auto bytes = static_cast<uint64_t>(p.rows * p.columns);
  readsF32(p.scale, 1);
  readsF32(p.noop, 1);
  writes(p.rowwise, bytes);
  writes(p.columnwise, bytes);
  for (float* each : {p.rowwiseScaleInv, p.columnwiseScaleInv, p.workspace, p.amaxOut}) writesF32(each, 1);
}

bool keeps(const float* noop) { return noop && *noop == 1; }

cudaError_t writesMx(const QuantizeMxParams& p) {
  if (!isTaken(p)) return cudaErrorInvalidValue;
  readsF32(p.noop, 1);
  for (const uint32_t* words : {p.rowwiseWords, p.columnwiseWords}) reads(words, bytesOf(p.rows * p.columns, 32));
  if (isAnyRule(p) && keeps(p.noop)) return cudaSuccess;
  for (const QuantizedCopy& copy : {p.rowwise, p.columnwise}) {
    writes(copy.codes, bytesOf(p.rows * p.columns, storageBits(p.word)));
    writesScales(copy.scales, copy.scales.lines, copy.scales.blocks, 1);
  }
  return cudaSuccess;
}

void readsForm(const ActivationSource& source) {
  const GatedForm& form = source.form;
  readsWide(form.x, form.xType, form.rows * form.columns * (source.gated ? 2 : 1));
  readsWide(form.grad, form.gradType, form.rows * form.columns);
}

}  // namespace

cudaError_t launchQuantizeTensor(const QuantizeTensorParams& p, cudaStream_t stream) {
  on(stream);
  if (!isTaken(p)) return cudaErrorInvalidValue;
  readsWide(p.x, p.xType, p.rows * p.columns);
  readsF32(p.amax, 1);
  writesTensor(p);
  return cudaSuccess;
}

cudaError_t launchNormQuantizeTensor(const NormQuantizeTensorParams& p, cudaStream_t stream) {
  on(stream);
  if (!isTaken(p)) return cudaErrorInvalidValue;
  QuantizeTensorParams target = p.target;
  target.rows = p.source.rows;
  target.columns = p.source.columns;
  writesTensor(target);
  return launchNorm(p.source, stream);
}

cudaError_t launchActivationQuantizeTensor(const ActivationQuantizeTensorParams& p, cudaStream_t stream) {
  on(stream);
  if (!isTaken(p)) return cudaErrorInvalidValue;
  readsForm(p.source);
  writesTensor(p.target);
  return cudaSuccess;
}

cudaError_t launchActivationQuantizeMx(const ActivationQuantizeMxParams& p, cudaStream_t stream) {
  on(stream);
  if (!isTaken(p)) return cudaErrorInvalidValue;
  readsForm(p.source);
  return writesMx(p.target);
}

cudaError_t launchQuantizeMx(const QuantizeMxParams& p, cudaStream_t stream) {
  on(stream);
  readsWide(p.x, p.xType, p.rows * p.columns);
  if (const cudaError_t error = writesMx(p); error != cudaSuccess) return error;
  if (isAnyRule(p)) quantizesMx(p);
  return cudaSuccess;
}

namespace {

template <typename Params>
void writesSums(const Params& p) {
  writesWide(p.out, p.outType, p.quantization.columns);
  writesF32(p.workspace, chunksOf(p.quantization.rows) * p.quantization.columns);
}

}  // namespace

cudaError_t launchBiasGradQuantizeTensor(const BiasGradQuantizeTensorParams& p, cudaStream_t stream) {
  QuantizeTensorParams quantization = p.quantization;
  quantization.workspace = p.workspace + chunksOf(quantization.rows) * quantization.columns;
  if (const cudaError_t error = launchQuantizeTensor(quantization, stream); error != cudaSuccess) return error;
  writesSums(p);
  return cudaSuccess;
}

cudaError_t launchBiasGradQuantizeBlock(const BiasGradQuantizeBlockParams& p, cudaStream_t stream) {
  if (const cudaError_t error = launchQuantizeBlock(p.quantization, stream); error != cudaSuccess) return error;
  writesSums(p);
  return cudaSuccess;
}

cudaError_t launchQuantizeRow(const QuantizeRowParams& p, cudaStream_t stream) {
  on(stream);
  if (!isTaken(p)) return cudaErrorInvalidValue;
  const int64_t count = p.rows * p.columns;
  readsWide(p.x, p.xType, count);
  readsF32(p.noop, 1);
  for (const RowCopy& copy : {p.rowwise, p.columnwise}) writes(copy.codes, static_cast<uint64_t>(count));
  writesF32(p.rowwise.scales, p.rows);
  writesF32(p.columnwise.scales, p.columns);
  writes(p.workspace, 4 * static_cast<uint64_t>((p.rowwise.codes ? p.rows : 0) + (p.columnwise.codes ? p.columns : 0)));
  return cudaSuccess;
}

// Scales are not written for a placement without lines or blocks.
cudaError_t launchQuantizeBlock(const QuantizeBlockParams& p, cudaStream_t stream) {
  on(stream);
  if (!isTaken(p)) return cudaErrorInvalidValue;
  const int64_t count = p.rows * p.columns;
  readsWide(p.x, p.xType, count);
  readsF32(p.noop, 1);
  for (const QuantizedCopy& copy : {p.rowwise, p.columnwise}) writes(copy.codes, static_cast<uint64_t>(count));
  if (count == 0) return cudaSuccess;
  const auto across = [](int64_t size) { return (size + 127) / 128; };
  const auto writesBeside = [](const ScalePlacement& scales, int64_t lines, int64_t blocks) {
    writesScales(scales, std::min(lines, scales.lines), std::min(blocks, scales.blocks), 4);
  };
  writesBeside(p.rowwise.scales, p.square ? across(p.rows) : p.rows, across(p.columns));
  writesBeside(p.columnwise.scales, p.square ? across(p.columns) : p.columns, across(p.rows));
  return cudaSuccess;
}

cudaError_t launchQuantizeGroup(const QuantizeGroupParams& p, cudaStream_t stream) {
  on(stream);
  if (!isTaken(p)) return cudaErrorInvalidValue;
  readsWide(p.x, p.xType, p.rows * p.columns);
  readsF32(p.noop, 1);
  if (keeps(p.noop)) return cudaSuccess;
  for (const QuantizedCopy& copy : {p.rowwise, p.columnwise}) {
    writes(copy.codes, bytesOf(p.rows * p.columns, 4));
    writesScales(copy.scales, copy.scales.lines, copy.scales.blocks, 4);
  }
  quantizesGroup(p);
  return cudaSuccess;
}

cudaError_t launchQuantizeNvfp4(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  on(stream);
  const bool isOwn = p.rule == ScaleRule::kTwoLevel && p.scaling == 0;
  if (!isTaken(p)) return cudaErrorInvalidValue;
  readsWide(p.x, p.xType, p.rows * p.columns);
  readsF32(p.noop, 1);
  const bool runs = !isOwn || (p.rowScaled && !p.fourOverSix);
  if (runs && keeps(p.noop)) return cudaSuccess;
  for (const Nvfp4Copy* copy : {&p.rowwise, &p.columnwise}) {
    if (!copy->codes) continue;
    reads(copy->words, bytesOf(p.rows * p.columns, 32));
    writes(copy->codes, bytesOf(p.rows * p.columns, 4));
    writesScales(copy->scales, copy->scales.lines, copy->scales.blocks, 1);
    readsF32(copy->givenAmax, 1);
    writesF32(copy->amax, p.rowScaled ? copy->scales.lines : 1);
  }
  if (runs) quantizesNvfp4(p);
  return cudaSuccess;
}

}  // namespace lockstep
