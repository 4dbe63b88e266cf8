#include "kernels/attention/hopper/forward-launch.cuh"

namespace lockstep {

template cudaError_t launchForward<Wide::kF16>(const AttentionParams& p, cudaStream_t stream);

}  // namespace lockstep
