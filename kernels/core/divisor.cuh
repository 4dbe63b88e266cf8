// Many quotients by one divisor, each rounded as a division's is, for less than a division each.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

// The quotient a * y of y = 1 / b is off by at most 1.5 units in its last place; what a - b q leaves then corrects it to the
// nearest number, for no quotient lies as near to the middle of two numbers as that errs. It holds while nothing under- or
// overflows: for b from 2^-20 to 2^20 and a from 2^-100 to 2^100, or 0.
class Divisor {
 public:
  __device__ explicit Divisor(float by) : by_(by), inverse_(1.0f / by), plain_(by >= 0x1p-20f && by <= 0x1p20f) {}

  // values[i] / by. None is negative.
  template <int width>
  __device__ void divide(float (&values)[width]) const {
    float quotients[width];
    bool plain = plain_;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float q = values[i] * inverse_;
      quotients[i] = __fmaf_rn(__fmaf_rn(-by_, q, values[i]), inverse_, q);
      plain = plain && (values[i] == 0 || __float_as_uint(values[i]) - kLeast <= kMost - kLeast);
    }
    if (plain) {
#pragma unroll
      for (int i = 0; i < width; ++i) values[i] = quotients[i];
    } else {
#pragma unroll
      for (int i = 0; i < width; ++i) values[i] = values[i] / by_;
    }
  }

 private:
  static constexpr uint32_t kLeast = (127 - 100) << 23;
  static constexpr uint32_t kMost = (127 + 100) << 23;

  float by_;
  float inverse_;
  bool plain_;
};

}  // namespace lockstep
