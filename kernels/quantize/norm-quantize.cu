// The forward pass of the norms with FP8 codes as output (kernels/rows/norm-forward.cuh).
#include "kernels/quantize/norm-quantize.gen.h"

#include "kernels/device/eight.cuh"
#include "kernels/quantize/amax-out.cuh"
#include "kernels/quantize/taken.h"
#include "kernels/rows/norm-forward.cuh"

namespace lockstep {

namespace {

// The output policy of the norm kernels that encodes the results with one scale for the tensor.
struct Codes {
  QuantizeTensorParams target;
  float scale = 0;
  float largest = 0;

  __device__ void begin() {
    scale = *target.scale;
    if (blockIdx.x == 0 && threadIdx.x == 0) storeInverse(target, scale);
  }

  template <int width>
  __device__ void store(int64_t index, const float (&y)[width]) {
    float scaled[width];
#pragma unroll
    for (int i = 0; i < width; ++i) scaled[i] = y[i] * scale;
    raiseTo(largest, y);
    uint8_t* to = target.rowwise + index;
    if (target.word == format::kE4m3) {
      storeCodes<format::kE4m3>(to, scaled);
    } else {
      storeCodes<format::kE5m2>(to, scaled);
    }
  }

  __device__ void end() {
    if (target.amaxOut != nullptr) raiseAmax(target.amaxOut, largest);
  }

 private:
  template <uint32_t word, int width>
  __device__ static void storeCodes(uint8_t* to, const float (&scaled)[width]) {
    if constexpr (width == 1) {
      *to = static_cast<uint8_t>(encodeNearest<word>(scaled[0]));
    } else {
      encodeNearest8<word>(scaled).store(to);
    }
  }
};

}  // namespace

cudaError_t launchNormQuantizeTensor(const NormQuantizeTensorParams& params, cudaStream_t stream) {
  const auto& [p, target] = params;
  if (!isTaken(params)) return cudaErrorInvalidValue;
  withWide(p.xType, [&](auto tag) {
    constexpr Wide type = tag.value;
    const Codes results{target};
    // an empty tensor also has one block, which writes 1 / scale
    const bool taken = p.parameterType == type ? tryRing<type, static_cast<int>(type)>(p, results, stream)
                                               : tryRing<type, kAnyType>(p, results, stream);
    if (!taken) launchDirect<type>(p, results, stream);
  });
  return cudaGetLastError();
}

}  // namespace lockstep
