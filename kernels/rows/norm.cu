// The forward pass of the norms with f32, bf16 or f16 output (kernels/rows/norm-forward.cuh). Codes as output are in
// kernels/quantize/norm-quantize.cu.
#include "kernels/rows/norm.gen.h"

#include "kernels/quantize/amax-out.cuh"
#include "kernels/rows/norm-forward.cuh"

namespace lockstep {

namespace {

// The output policy that stores values. Their type is `known` if the kernel was compiled for one type.
template <int known, bool measured>
struct Values {
  void* out;
  Wide type;
  // Used if `measured`: replaced by the amax of the stored values if that is larger.
  float* amax;
  float largest = 0;

  __device__ void begin() {}

  template <int width>
  __device__ void store(int64_t index, const float (&y)[width]) {
    storeElements(out, typeOr<known>(type), index, y);
    if constexpr (measured) raiseTo(largest, y);
  }

  __device__ void end() {
    // Rounding is monotonic, so only the maximum is rounded.
    if constexpr (measured) raiseAmax(amax, rounded(typeOr<known>(type), largest));
  }
};

template <bool measured>
void launchValues(const NormParams& p, cudaStream_t stream) {
  if (p.rows == 0) return;
  withWide(p.xType, [&](auto tag) {
    constexpr Wide type = tag.value;
    constexpr int same = static_cast<int>(type);
    const Values<kAnyType, measured> results{p.out, p.outType, p.amax};
    const bool taken = p.outType == type && p.parameterType == type
                           ? tryRing<type, same>(p, Values<same, measured>{p.out, type, p.amax}, stream)
                           : tryRing<type, kAnyType>(p, results, stream);
    if (!taken) launchDirect<type>(p, results, stream);
  });
}

}  // namespace

cudaError_t launchNorm(const NormParams& p, cudaStream_t stream) {
  if (p.amax == nullptr) {
    launchValues<false>(p, stream);
  } else if (cudaError_t error = cudaMemsetAsync(p.amax, 0, sizeof(float), stream); error == cudaSuccess) {
    launchValues<true>(p, stream);
  } else {
    return error;
  }
  return cudaGetLastError();
}

}  // namespace lockstep
