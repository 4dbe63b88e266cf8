// What goes wrong, and how JavaScript is told.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

namespace lockstep {

// An error that JavaScript sees: `code` is one of src/errors.ts's, further fields are for that code.
struct Failure {
  std::string code;
  std::string message;
  uint64_t wanted = 0;
  uint64_t free = 0;
};

std::string describe(const char* what, cudaError_t error);

// Takes an error that was expected or cannot be helped, so that no later cudaGetLastError meets it.
inline void ignore(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
}

}  // namespace lockstep
