// A kernel whose launch is prepared while the one before it in its stream still runs, where devices can.
#pragma once

#include <cuda_runtime.h>

#include "kernels/device/occupancy.cuh"

namespace lockstep {

// Lets the dependent kernel start as soon as there is room; what is written before and after it sees all the same.
__device__ inline void letNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits for all that the kernel before wrote; a dependent kernel's first access of it comes after.
__device__ inline void awaitPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Launches a kernel that calls awaitPrevious, with `bytes` of shared memory beside what it declares.
template <typename Kernel, typename... Arguments>
cudaError_t launchDependent(Kernel kernel, dim3 blocks, unsigned threads, int bytes, cudaStream_t stream,
                            Arguments... arguments) {
  if (bytes > 0) {
    if (const cudaError_t error = allowShared(kernel); error != cudaSuccess) return error;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = limitsOfDevice().clusters ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace lockstep
