#include "kernels/attention/hopper/forward-launch.cuh"

namespace lockstep {

template cudaError_t launchForwardOf<Wide::kBf16, true>(const AttentionParams& p, cudaStream_t stream);

}  // namespace lockstep
