#include "kernels/attention/hopper/key-grads-launch.cuh"

namespace lockstep {

template cudaError_t launchKeyGrads<Wide::kF16>(const AttentionBackwardParams& p, const TileLists& lists,
                                                cudaStream_t stream);

}  // namespace lockstep
