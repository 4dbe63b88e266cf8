// Programmatic dependent launch (PDL), on sm_90 and later: a kernel is launched while the previous kernel of its stream still
// runs, and then waits on the device for the writes of that kernel. On earlier GPUs the kernels run one after the other.
#pragma once

#include <cuda_runtime.h>

#include "kernels/device/occupancy.cuh"

namespace lockstep {

// Allows the next kernel of the stream to be launched early. The next kernel sees all writes of this one, whether they come
// before or after this call, because it calls awaitPrevious.
__device__ inline void letNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until the previous kernel of the stream has completed and its writes are visible. Call it before the first access to
// memory that the previous kernel touches.
__device__ inline void awaitPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Launches a kernel that calls awaitPrevious. `bytes` is the dynamic shared memory per block.
template <typename Kernel, typename... Arguments>
cudaError_t launchPdl(Kernel kernel, dim3 blocks, unsigned threads, int bytes, cudaStream_t stream,
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
