#include "native/driver.h"

#include <string>

#include "native/context.h"

namespace lockstep {

namespace {

// The version of the driver interface that the functions below are declared in.
constexpr unsigned kDriverVersion = 13000;

// A function of the driver, which is loaded when it is first asked for: the addon links without a driver.
template <typename Function>
Function* entryPoint(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, kDriverVersion, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    throw Failure{"BACKEND", std::string("the driver has no ") + name + "; CUDA 13 needs driver 580 or later"};
  }
  return reinterpret_cast<Function*>(function);
}

}  // namespace

CUcontext createDriverContext(int device) {
  static auto* const get = entryPoint<decltype(cuDeviceGet)>("cuDeviceGet");
  static auto* const create = entryPoint<decltype(cuCtxCreate)>("cuCtxCreate");
  CUdevice handle = 0;
  CUcontext context = nullptr;
  CUctxCreateParams params{};
  CUresult result = get(&handle, device);
  if (result == CUDA_SUCCESS) result = create(&context, &params, CU_CTX_SCHED_AUTO, handle);
  if (result != CUDA_SUCCESS) {
    throw Failure{"BACKEND", "device " + std::to_string(device) + " gave no context: CUDA driver error " +
                                 std::to_string(result)};
  }
  return context;
}

CUresult useDriverContext(CUcontext context) {
  static auto* const setCurrent = entryPoint<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent");
  return setCurrent(context);
}

void destroyDriverContext(CUcontext context) {
  static auto* const destroy = entryPoint<decltype(cuCtxDestroy)>("cuCtxDestroy");
  destroy(context);
}

}  // namespace lockstep
