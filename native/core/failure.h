// Errors of the addon.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

namespace lockstep {

// An error to be thrown in JavaScript. `code` is one of the codes of src/errors.ts. For OUT_OF_MEMORY, `wanted` is the number of
// requested bytes and `free` the number of free bytes of the device.
struct Failure {
  std::string code;
  std::string message;
  uint64_t wanted = 0;
  uint64_t free = 0;
};

std::string describe(const char* what, cudaError_t error);

// Ignores an error that was expected or cannot be handled, and clears it, so that no later cudaGetLastError returns it.
inline void ignore(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
}

}  // namespace lockstep
