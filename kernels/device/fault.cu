// A kernel that fails on purpose, so that tests can check the library's behaviour after a device error.
#include "kernels/device/fault.h"

namespace lockstep {

namespace {

__global__ void faultKernel() { __trap(); }

}  // namespace

cudaError_t launchFault(cudaStream_t stream) {
  faultKernel<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}

}  // namespace lockstep
