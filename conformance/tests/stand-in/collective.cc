// The stand-in for the kernel that combines arrays of several ranks. It computes the same results, so that tests of
// processes can compare bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>

#include "conformance/tests/stand-in/touch.h"
#include "kernels/collective/calls.gen.h"

namespace lockstep {

namespace {

float load(const void* data, Wide type, int64_t at) {
  if (type == Wide::kF32) {
    float value;
    std::memcpy(&value, static_cast<const uint8_t*>(data) + 4 * at, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, static_cast<const uint8_t*>(data) + 2 * at, 2);
  return type == Wide::kBf16 ? __bfloat162float(__ushort_as_bfloat16(bits)) : __half2float(__ushort_as_half(bits));
}

void store(void* data, Wide type, int64_t at, float value) {
  if (type == Wide::kF32) {
    std::memcpy(static_cast<uint8_t*>(data) + 4 * at, &value, 4);
    return;
  }
  const uint16_t bits = type == Wide::kBf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value))
                                            : __half_as_ushort(__float2half_rn(value));
  std::memcpy(static_cast<uint8_t*>(data) + 2 * at, &bits, 2);
}

float rounded(Wide type, float value) {
  uint8_t bytes[4];
  store(bytes, type, 0, value);
  return load(bytes, type, 0);
}

float larger(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

}  // namespace

cudaError_t launchFold(const FoldParams& p, cudaStream_t stream) {
  standin::on(stream);
  const int64_t bytes = p.type == Wide::kF32 ? 4 : 2;
  const auto part = [&](int64_t i) -> const void* {
    if (p.own && i == p.ownAt) return p.own;
    return static_cast<const uint8_t*>(p.parts) + (p.own && i > p.ownAt ? i - 1 : i) * p.stride * bytes;
  };
  for (int64_t at = 0; at < p.count; ++at) {
    float total = load(part(0), p.type, at);
    for (int64_t i = 1; i < p.ranks; ++i) {
      const float value = load(part(i), p.type, at);
      total = p.maximum ? larger(total, value) : rounded(p.sumType, total + value);
    }
    store(p.out, p.type, at, p.factor == 1 ? total : rounded(p.type, total) * p.factor);
  }
  return cudaSuccess;
}

}  // namespace lockstep
