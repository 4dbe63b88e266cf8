#include "kernels/attention/hopper/query-grads-launch.cuh"

namespace lockstep {

template cudaError_t launchQueryGrads<Wide::kBf16>(const AttentionBackwardParams& p, int32_t* list,
                                                   cudaStream_t stream);

}  // namespace lockstep
