// Correctly rounded division of many values by one divisor, faster than one division per value.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

// Let y be 1 / b rounded to f32. The quotient q = a * y is off by at most 1.5 ulp. Adding y times the residual a - b q then gives
// the nearest number, because no exact quotient is so close to a rounding boundary that the remaining error matters. This holds
// only if nothing underflows or overflows. Therefore it is used for b in [2^-20, 2^20] and for a = 0 or a in [2^-100, 2^100];
// other inputs take the ordinary division.
class Divisor {
 public:
  __device__ explicit Divisor(float by) : by_(by), inverse_(1.0f / by), plain_(by >= 0x1p-20f && by <= 0x1p20f) {}

  // values[i] /= by. No value may be negative.
  template <int width>
  __device__ void divide(float (&values)[width]) const {
    float quotients[width];
    bool plain = plain_;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float q = values[i] * inverse_;
      quotients[i] = __fmaf_rn(__fmaf_rn(-by_, q, values[i]), inverse_, q);
      plain = plain && (values[i] == 0 || __float_as_uint(values[i]) - kMin <= kMax - kMin);
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
  static constexpr uint32_t kMin = (127 - 100) << 23;
  static constexpr uint32_t kMax = (127 + 100) << 23;

  float by_;
  float inverse_;
  bool plain_;
};

}  // namespace lockstep
