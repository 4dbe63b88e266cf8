#pragma once

#include <cuda_runtime.h>

namespace lockstep {

// Launches a kernel that fails, which breaks the CUDA context of the process.
cudaError_t launchFault(cudaStream_t stream);

}  // namespace lockstep
