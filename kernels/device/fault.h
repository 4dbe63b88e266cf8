#pragma once

#include <cuda_runtime.h>

namespace lockstep {

// Breaks the context it runs in, as a wrong kernel would.
cudaError_t launchFault(cudaStream_t stream);

}  // namespace lockstep
