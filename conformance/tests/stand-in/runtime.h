// Helpers that the stand-ins for the CUDA runtime share.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace standin {

// Leaves an error for cudaGetLastError, and returns it.
cudaError_t told(cudaError_t error);

// A number of the environment.
uint64_t setting(const char* name, uint64_t otherwise);

}  // namespace standin
