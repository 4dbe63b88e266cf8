// CUDA's host-callable conversions behind one command line, compiled by the host compiler: no GPU takes part.
//
//   cuda_conversions list                     format rounding overflow, one conversion a line
//   cuda_conversions encode FORMAT ROUNDING OVERFLOW    f32 bits on stdin -> codes on stdout
//   cuda_conversions decode FORMAT            codes on stdin -> f32 bits on stdout
//   cuda_conversions digest FORMAT ROUNDING OVERFLOW    "chunk d1 d2" for all 256 chunks of 2^24 inputs
//
// Words on stdin and stdout are 32 bits, little-endian.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

using Convert = uint32_t (*)(uint32_t);

float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

template <__nv_fp8_interpretation_t kFormat, __nv_saturation_t kSaturation>
uint32_t to_fp8(uint32_t bits) {
  return __nv_cvt_float_to_fp8(as_float(bits), kSaturation, kFormat);
}

template <__nv_fp6_interpretation_t kFormat, cudaRoundMode kRounding>
uint32_t to_fp6(uint32_t bits) {
  return __nv_cvt_float_to_fp6(as_float(bits), kFormat, kRounding);
}

template <cudaRoundMode kRounding>
uint32_t to_fp4(uint32_t bits) {
  return __nv_cvt_float_to_fp4(as_float(bits), __NV_E2M1, kRounding);
}

template <cudaRoundMode kRounding, __nv_saturation_t kSaturation>
uint32_t to_e8m0(uint32_t bits) {
  return __nv_cvt_float_to_e8m0(as_float(bits & 0x7fffffff), kSaturation, kRounding);
}

template <cudaRoundMode kRounding, __nv_saturation_t kSaturation>
uint32_t to_ue5m3(uint32_t bits) {
  return __nv_cvt_float_to_ue5m3(as_float(bits), kSaturation, kRounding);
}

template <__nv_bfloat16 (*kFunction)(float)>
uint32_t to_bf16(uint32_t bits) {
  return static_cast<__nv_bfloat16_raw>(kFunction(as_float(bits))).x;
}

template <__half (*kFunction)(float)>
uint32_t to_f16(uint32_t bits) {
  return static_cast<__half_raw>(kFunction(as_float(bits))).x;
}

uint32_t f16_to_f32(__half_raw raw) { return as_bits(__half2float(__half(raw))); }

template <__nv_fp8_interpretation_t kFormat>
uint32_t from_fp8(uint32_t code) {
  return f16_to_f32(__nv_cvt_fp8_to_halfraw(static_cast<uint8_t>(code), kFormat));
}

template <__nv_fp6_interpretation_t kFormat>
uint32_t from_fp6(uint32_t code) {
  return f16_to_f32(__nv_cvt_fp6_to_halfraw(static_cast<uint8_t>(code), kFormat));
}

uint32_t from_fp4(uint32_t code) {
  return f16_to_f32(__nv_cvt_fp4_to_halfraw(static_cast<uint8_t>(code), __NV_E2M1));
}

uint32_t from_bf16(uint32_t code) {
  __nv_bfloat16_raw raw;
  raw.x = static_cast<unsigned short>(code);
  return as_bits(__bfloat162float(__nv_bfloat16(raw)));
}

uint32_t from_e8m0(uint32_t code) { return from_bf16(__nv_cvt_e8m0_to_bf16raw(static_cast<uint8_t>(code)).x); }

uint32_t from_ue5m3(uint32_t code) { return from_bf16(__nv_cvt_ue5m3_to_bf16raw(static_cast<uint8_t>(code)).x); }

uint32_t from_f16(uint32_t code) {
  __half_raw raw;
  raw.x = static_cast<unsigned short>(code);
  return f16_to_f32(raw);
}

uint32_t weight(uint32_t x, uint32_t k) {
  x ^= x >> 16;
  x *= k;
  return (x ^ x >> 15) | 1;
}

struct Digest {
  uint32_t d1, d2;
};

template <Convert kConvert, bool kCanonicalNan>
Digest digest_chunk(uint32_t chunk) {
  Digest sum{0, 0};
  for (uint32_t n = 0; n < 1u << 24; ++n) {
    const uint32_t i = chunk << 24 | n;
    const bool nan = kCanonicalNan && (i & 0x7fffffff) > 0x7f800000;
    const uint32_t term = (nan ? 0xffff : kConvert(i)) + 1;
    sum.d1 += term * weight(i, 0x7feb352d);
    sum.d2 += term * weight(i, 0x846ca68b);
  }
  return sum;
}

struct Encode {
  const char *format, *rounding, *overflow;
  Convert convert;
  Digest (*digest)(uint32_t chunk);
};

template <Convert kConvert>
constexpr Encode small(const char* format, const char* rounding, const char* overflow) {
  return {format, rounding, overflow, kConvert, digest_chunk<kConvert, false>};
}

template <Convert kConvert>
constexpr Encode wide(const char* format, const char* rounding) {
  return {format, rounding, "nonfinite", kConvert, digest_chunk<kConvert, true>};
}

const Encode kEncodes[] = {
    small<to_fp8<__NV_E4M3, __NV_SATFINITE>>("e4m3", "tiesToEven", "saturate"),
    small<to_fp8<__NV_E4M3, __NV_NOSAT>>("e4m3", "tiesToEven", "nonfinite"),
    small<to_fp8<__NV_E5M2, __NV_SATFINITE>>("e5m2", "tiesToEven", "saturate"),
    small<to_fp8<__NV_E5M2, __NV_NOSAT>>("e5m2", "tiesToEven", "nonfinite"),
    small<to_fp4<cudaRoundNearest>>("e2m1", "tiesToEven", "saturate"),
    small<to_fp4<cudaRoundZero>>("e2m1", "towardZero", "saturate"),
    small<to_fp6<__NV_E2M3, cudaRoundNearest>>("e2m3", "tiesToEven", "saturate"),
    small<to_fp6<__NV_E2M3, cudaRoundZero>>("e2m3", "towardZero", "saturate"),
    small<to_fp6<__NV_E3M2, cudaRoundNearest>>("e3m2", "tiesToEven", "saturate"),
    small<to_fp6<__NV_E3M2, cudaRoundZero>>("e3m2", "towardZero", "saturate"),
    small<to_e8m0<cudaRoundPosInf, __NV_SATFINITE>>("e8m0", "towardPositive", "saturate"),
    small<to_e8m0<cudaRoundPosInf, __NV_NOSAT>>("e8m0", "towardPositive", "nonfinite"),
    small<to_e8m0<cudaRoundZero, __NV_SATFINITE>>("e8m0", "towardZero", "saturate"),
    small<to_e8m0<cudaRoundZero, __NV_NOSAT>>("e8m0", "towardZero", "nonfinite"),
    small<to_ue5m3<cudaRoundNearest, __NV_SATFINITE>>("ue5m3", "tiesToEven", "saturate"),
    small<to_ue5m3<cudaRoundNearest, __NV_NOSAT>>("ue5m3", "tiesToEven", "nonfinite"),
    small<to_ue5m3<cudaRoundZero, __NV_SATFINITE>>("ue5m3", "towardZero", "saturate"),
    small<to_ue5m3<cudaRoundZero, __NV_NOSAT>>("ue5m3", "towardZero", "nonfinite"),
    small<to_ue5m3<cudaRoundPosInf, __NV_SATFINITE>>("ue5m3", "towardPositive", "saturate"),
    small<to_ue5m3<cudaRoundPosInf, __NV_NOSAT>>("ue5m3", "towardPositive", "nonfinite"),
    wide<to_bf16<__float2bfloat16_rn>>("bf16", "tiesToEven"),
    wide<to_bf16<__float2bfloat16_rz>>("bf16", "towardZero"),
    wide<to_bf16<__float2bfloat16_ru>>("bf16", "towardPositive"),
    wide<to_bf16<__float2bfloat16_rd>>("bf16", "towardNegative"),
    wide<to_f16<__float2half_rn>>("f16", "tiesToEven"),
    wide<to_f16<__float2half_rz>>("f16", "towardZero"),
    wide<to_f16<__float2half_ru>>("f16", "towardPositive"),
    wide<to_f16<__float2half_rd>>("f16", "towardNegative"),
};

struct Decode {
  const char* format;
  Convert convert;
};

const Decode kDecodes[] = {
    {"e4m3", from_fp8<__NV_E4M3>}, {"e5m2", from_fp8<__NV_E5M2>}, {"e2m1", from_fp4},
    {"e2m3", from_fp6<__NV_E2M3>}, {"e3m2", from_fp6<__NV_E3M2>}, {"e8m0", from_e8m0},
    {"bf16", from_bf16},           {"f16", from_f16},              {"ue5m3", from_ue5m3},
};

bool same(const char* a, const char* b) { return std::strcmp(a, b) == 0; }

const Encode* find_encode(char** names) {
  for (const Encode& row : kEncodes)
    if (same(row.format, names[0]) && same(row.rounding, names[1]) && same(row.overflow, names[2])) return &row;
  return nullptr;
}

const Decode* find_decode(const char* format) {
  for (const Decode& row : kDecodes)
    if (same(row.format, format)) return &row;
  return nullptr;
}

int pipe_words(Convert convert) {
  for (uint32_t word; std::fread(&word, sizeof word, 1, stdin) == 1;) {
    word = convert(word);
    if (std::fwrite(&word, sizeof word, 1, stdout) != 1) return 1;
  }
  return 0;
}

int print_digest(const Encode& row) {
  for (uint32_t chunk = 0; chunk < 256; ++chunk) {
    const Digest sum = row.digest(chunk);
    std::printf("%u %u %u\n", chunk, sum.d1, sum.d2);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && same(argv[1], "list")) {
    for (const Encode& row : kEncodes) std::printf("%s %s %s\n", row.format, row.rounding, row.overflow);
    return 0;
  }
  if (argc == 3 && same(argv[1], "decode"))
    if (const Decode* row = find_decode(argv[2])) return pipe_words(row->convert);
  if (argc == 5)
    if (const Encode* row = find_encode(argv + 2)) {
      if (same(argv[1], "encode")) return pipe_words(row->convert);
      if (same(argv[1], "digest")) return print_digest(*row);
    }
  std::fprintf(stderr, "usage: %s list | encode|digest FORMAT ROUNDING OVERFLOW | decode FORMAT\n", argv[0]);
  return 2;
}
