// A kernel that fails, so that what happens after a failure can be tested.
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
