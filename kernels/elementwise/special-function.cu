// The approximate instructions of the special-function unit (docs/numerics.md 7.11), each as PTX names it, and CUDA's
// math functions (docs/special-functions.md). A thread computes one element.
#include "kernels/device/device.cuh"
#include "kernels/elementwise/special-function.gen.h"

namespace lockstep {

namespace {

/** A function as -use_fast_math compiles it: f32 operations that count subnormals as zero. */
__device__ float fastFunction(SpecialFunction kind, float x) {
  float y = 0;
  switch (kind) {
    case SpecialFunction::kExpfFast:
      asm("mul.ftz.f32 %0, %1, 0f3FB8AA3B; ex2.approx.ftz.f32 %0, %0;" : "=f"(y) : "f"(x));
      break;
    case SpecialFunction::kLogfFast:
      asm("lg2.approx.ftz.f32 %0, %1; mul.ftz.f32 %0, %0, 0f3F317218;" : "=f"(y) : "f"(x));
      break;
    default:
      // kErffFast: without subnormals, the operations of erff with and without ftz give the same bits
      return erff(fabsf(x) < 0x1p-126f ? copysignf(0, x) : x);
  }
  return y;
}

/** A math function of CUDA. */
__device__ float mathFunction(SpecialFunction kind, float x) {
  switch (kind) {
    case SpecialFunction::kExpf:
      return expf(x);
    case SpecialFunction::kLogf:
      return logf(x);
    case SpecialFunction::kLog2f:
      return log2f(x);
    case SpecialFunction::kTanhf:
      return tanhf(x);
    case SpecialFunction::kErff:
      return erff(x);
    case SpecialFunction::kSqrtf:
      return sqrtf(x);
    case SpecialFunction::kSinf:
      return sinf(x);
    case SpecialFunction::kCosf:
      return cosf(x);
    default:
      return fastFunction(kind, x);
  }
}

/** A function of two arguments. */
__device__ float functionOfTwo(SpecialFunction kind, float x, float y) {
  float result = 0;
  switch (kind) {
    case SpecialFunction::kDivide:
      return x / y;
    case SpecialFunction::kDivideFast:
      asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
      break;
    case SpecialFunction::kPowf:
      return powf(x, y);
    default:
      // kPowfFast
      asm("lg2.approx.ftz.f32 %0, %1; mul.ftz.f32 %0, %2, %0; ex2.approx.ftz.f32 %0, %0;"
          : "=&f"(result)
          : "f"(x), "f"(y));
      break;
  }
  return result;
}

__device__ uint32_t special32(SpecialFunction kind, uint32_t x) {
  uint32_t y = 0x7fffffffu;
  switch (kind) {
#define LOCKSTEP_SPECIAL(member, instruction)       \
  case SpecialFunction::member:                     \
    asm(instruction " %0, %1;" : "=r"(y) : "r"(x)); \
    break;
    LOCKSTEP_SPECIAL(kEx2Ftz, "ex2.approx.ftz.f32")
    LOCKSTEP_SPECIAL(kEx2, "ex2.approx.f32")
    LOCKSTEP_SPECIAL(kLg2Ftz, "lg2.approx.ftz.f32")
    LOCKSTEP_SPECIAL(kLg2, "lg2.approx.f32")
    LOCKSTEP_SPECIAL(kRcpFtz, "rcp.approx.ftz.f32")
    LOCKSTEP_SPECIAL(kRcp, "rcp.approx.f32")
    LOCKSTEP_SPECIAL(kRsqrtFtz, "rsqrt.approx.ftz.f32")
    LOCKSTEP_SPECIAL(kRsqrt, "rsqrt.approx.f32")
    LOCKSTEP_SPECIAL(kSqrtFtz, "sqrt.approx.ftz.f32")
    LOCKSTEP_SPECIAL(kSqrt, "sqrt.approx.f32")
    LOCKSTEP_SPECIAL(kSinFtz, "sin.approx.ftz.f32")
    LOCKSTEP_SPECIAL(kSin, "sin.approx.f32")
    LOCKSTEP_SPECIAL(kCosFtz, "cos.approx.ftz.f32")
    LOCKSTEP_SPECIAL(kCos, "cos.approx.f32")
    LOCKSTEP_SPECIAL(kTanh, "tanh.approx.f32")
#undef LOCKSTEP_SPECIAL
    default:
      return __float_as_uint(mathFunction(kind, __uint_as_float(x)));
  }
  return y;
}

__device__ uint16_t special16(SpecialFunction kind, uint16_t x) {
  uint16_t y = 0x7fff;
  switch (kind) {
    case SpecialFunction::kEx2F16:
      asm("ex2.approx.f16 %0, %1;" : "=h"(y) : "h"(x));
      break;
    case SpecialFunction::kTanhF16:
      asm("tanh.approx.f16 %0, %1;" : "=h"(y) : "h"(x));
      break;
// compute capability 8.9 has no bf16 forms; the lowering refuses them there
#if __CUDA_ARCH__ >= 900
    case SpecialFunction::kEx2Bf16:
      asm("ex2.approx.ftz.bf16 %0, %1;" : "=h"(y) : "h"(x));
      break;
    case SpecialFunction::kTanhBf16:
      asm("tanh.approx.bf16 %0, %1;" : "=h"(y) : "h"(x));
      break;
#endif
    default:
      break;
  }
  return y;
}

__global__ void __launch_bounds__(kItemThreads) specialFunctionKernel(const SpecialFunctionParams p) {
  const int64_t i = itemIndex();
  if (i >= p.count) return;
  const auto kind = static_cast<SpecialFunction>(p.kind);
  if (p.y != nullptr) {
    static_cast<float*>(p.out)[i] = functionOfTwo(kind, static_cast<const float*>(p.x)[i], p.y[i]);
  } else if (p.xType == Wide::kF32) {
    static_cast<uint32_t*>(p.out)[i] = special32(kind, static_cast<const uint32_t*>(p.x)[i]);
  } else {
    static_cast<uint16_t*>(p.out)[i] = special16(kind, static_cast<const uint16_t*>(p.x)[i]);
  }
}

}  // namespace

cudaError_t launchSpecialFunction(const SpecialFunctionParams& p, cudaStream_t stream) {
  return launchItems(specialFunctionKernel, p.count, p, stream);
}

}  // namespace lockstep
