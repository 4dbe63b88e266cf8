#include "conformance/tests/stand-in/any-rules.h"

#include <algorithm>
#include <cstring>

#include "kernels/quantize/int4/group.cuh"
#include "kernels/quantize/mx/any.cuh"
#include "kernels/quantize/nvfp4/any.cuh"

using namespace lockstep;

namespace standin {

namespace {

template <Wide type, typename Params>
float amaxOf(const Params& p) {
  const auto* x = static_cast<const typename WideOf<type>::Storage*>(p.x);
  uint32_t largest = 0;
  for (int64_t i = 0; i < p.rows * p.columns; ++i) largest = max(largest, magnitudeOf(WideOf<type>::load(x[i])));
  return floatOf(largest);
}

void clears(const ScalePlacement& scales) {
  if (scales.clearBytes > 0) std::memset(scales.data, 0, static_cast<size_t>(scales.clearBytes));
}

}  // namespace

bool isAnyRule(const QuantizeMxParams& p) { return mxany::isGeneral(p) || p.stochastic; }

void quantizesMx(const QuantizeMxParams& p) {
  using namespace mxany;
  if (isNoop(p.noop)) return;
  clears(p.rowwise.scales);
  clears(p.columnwise.scales);
  const auto tiles = static_cast<uint32_t>((p.rows / kBlock) * (p.columns / kBlock));
  withWide(p.xType, [&](auto type) {
    launch(static_cast<uint32_t>(ceilDivide(tiles, kThreads / 32)), kThreads, [&] {
      if (isGeneral(p)) {
        quantizeAny<type.value, true>(p);
      } else {
        quantizeAny<type.value, false>(p);
      }
    });
  });
}

void quantizesNvfp4(const QuantizeNvfp4Params& p) {
  using namespace nvfp4any;
  if (isNoop(p.noop)) return;
  withWide(p.xType, [&](auto type) {
    for (const Nvfp4Copy* copy : {&p.rowwise, &p.columnwise}) {
      clears(copy->scales);
      if (copy->codes && copy->amax && !p.rowScaled) *copy->amax = copy->givenAmax ? *copy->givenAmax : amaxOf<type.value>(p);
    }
    if (p.rowScaled) {
      for (int64_t line = 0; line < std::max(p.rows, p.columns); ++line) clearLineAmaxes(p, line);
    } else if (hasTensorScale(p.rule)) {
      launch(1, 1, [&] { storeTensorScales<type.value>(p); });
    }
    if (p.rows == 0 || p.columns == 0) return;
    if (p.rowScaled) launch(blocksOf(p), kWarps * 32, [&] { raiseLineAmaxes<type.value>(p, blocksAcross(p)); });
    launch(blocksOf(p), kWarps * 32, [&] { quantizeAny<type.value>(p, blocksAcross(p)); });
  });
}

void quantizesGroup(const QuantizeGroupParams& p) {
  using namespace int4group;
  if (isNoop(p.noop) || p.rows == 0 || p.columns == 0) return;
  withWide(p.xType, [&](auto type) {
    for (const bool isRowwise : {true, false}) {
      if ((isRowwise ? p.rowwise : p.columnwise).codes == nullptr) continue;
      const uint32_t across = warpsAcross(p, isRowwise);
      launch(static_cast<uint32_t>(blocksOf(p, isRowwise)), kWarps * 32, [&] {
        if (isRowwise) {
          quantizeRows<type.value>(p, across);
        } else {
          quantizeColumns<type.value>(p, across);
        }
      });
    }
  });
}

}  // namespace standin
