// kernels/quantize/noop.cuh for kernels that run on a CPU.
#pragma once

namespace lockstep {

inline bool isNoop(const float* noop) { return noop != nullptr && *noop == 1; }

}  // namespace lockstep
