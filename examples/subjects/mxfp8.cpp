// A quantizer to MXFP8 in C++, by the dialect `te`: e4m3, blocks of 32, scales rounded up, ties to even. Lockstep tests it by
//
//   g++ -std=c++17 -O2 -o subject examples/subjects/mxfp8.cpp
//   lockstep conform --subject ./subject

#include <algorithm>
#include <cmath>

#include "frames.hpp"

namespace {

constexpr std::size_t kBlock = 32;

/** The code of the least power of two by which `amax` fits into 448: the exponent of amax / 448, rounded up. */
std::uint8_t scale_of(float amax) {
  const float quotient = amax * (1.0f / 448);
  std::uint32_t bits;
  std::memcpy(&bits, &quotient, 4);
  const std::uint32_t field = bits >> 23, fraction = bits & 0x7fffff;
  const bool up = field == 0 ? fraction > 0x400000 : fraction > 0;
  return static_cast<std::uint8_t>(std::min(field + up, 254u));
}

/** The code of a value. Beyond 448 it is that of the largest one. */
std::uint8_t to_e4m3(float x) {
  if (std::isnan(x)) return 0x7f;
  const float a = std::min(std::fabs(x), 448.0f);
  const int exponent = a == 0 ? -6 : std::max(std::ilogb(a), -6);
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(a, 3 - exponent)));
  return static_cast<std::uint8_t>((std::signbit(x) ? 0x80 : 0) | ((exponent + 6) * 8 + steps));
}

void quantize_block(const float* x, std::uint8_t* codes, std::uint8_t* scale) {
  float amax = 0;
  for (std::size_t i = 0; i < kBlock; i++)
    if (std::fabs(x[i]) > amax) amax = std::fabs(x[i]);  // no NaN is greater
  *scale = scale_of(amax);
  const float factor = std::ldexp(1.0f, 127 - *scale);
  for (std::size_t i = 0; i < kBlock; i++) codes[i] = to_e4m3(x[i] * factor);
}

frames::Tensors quantize(const frames::Json&, const frames::Tensors& tensors) {
  const frames::Tensor& x = tensors.at("x");
  const std::size_t rows = x.shape.at(0), columns = x.shape.at(1), count = rows * columns;
  std::vector<float> values(count);
  if (count > 0) std::memcpy(values.data(), x.bytes.data(), x.bytes.size());
  std::vector<std::uint8_t> codes(count), scales(count / kBlock);
  for (std::size_t i = 0; i < scales.size(); i++) quantize_block(&values[i * kBlock], &codes[i * kBlock], &scales[i]);
  return {{"rowwise.data", {"U8", {rows, columns}, codes}},
          {"rowwise.scaleInv", {"U8", {rows, columns / kBlock}, scales}}};
}

constexpr const char* kSupported = R"({
  "spec.quantizer": ["mxfp8"], "spec.format": ["e4m3"], "spec.tile": ["1x32"],
  "spec.scaleRule": ["e8m0Up"], "spec.elementScaling": ["multiply"], "spec.stochastic": [false],
  "usage.rowwise": [true], "usage.columnwise": [false], "scaleLayout": ["logical"],
  "x.dtype": ["f32"], "x.shape.length": [2], "noop": [null]
})";

}  // namespace

int main() { return frames::answer_cases("mxfp8 in C++", "quantize", kSupported, quantize); }
