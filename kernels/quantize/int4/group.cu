// INT4 quantization in groups: one kernel for each copy, each of which reads the source.
#include "kernels/quantize/int4/group.cuh"

#include "kernels/quantize/taken.h"

namespace lockstep {

cudaError_t launchQuantizeGroup(const QuantizeGroupParams& p, cudaStream_t stream) {
  using namespace int4group;
  if (!isTaken(p)) return cudaErrorInvalidValue;
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  for (const bool isRowwise : {true, false}) {
    if ((isRowwise ? p.rowwise.codes : p.columnwise.codes) == nullptr) continue;
    const int64_t blocks = blocksOf(p, isRowwise);
    if (blocks > INT32_MAX) return cudaErrorInvalidValue;
    const uint32_t across = warpsAcross(p, isRowwise);
    withWide(p.xType, [&](auto type) {
      if (isRowwise) {
        quantizeRows<type.value><<<static_cast<uint32_t>(blocks), kWarps * 32, 0, stream>>>(p, across);
      } else {
        quantizeColumns<type.value><<<static_cast<uint32_t>(blocks), kWarps * 32, 0, stream>>>(p, across);
      }
    });
  }
  return cudaGetLastError();
}

}  // namespace lockstep
