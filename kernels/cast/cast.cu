// Casts between the wide types (f32, bf16, f16) and the codes of any scalar format. A thread processes groups of eight
// elements (kernels/device/eight.cuh).
#include "kernels/cast/cast.gen.h"

#include "kernels/device/eight.cuh"

namespace lockstep {

namespace {

// Encodes eight values in a format known at compile time: to nearest even, saturating.
template <uint32_t word>
struct Nearest {
  using Codes = Bytes<storageBits(word)>;
  static constexpr int kEights = 4;
  __device__ static Codes encode8(const EncodeParams&, int64_t, const float (&x)[8]) { return encodeNearest8<word>(x); }
};

// Encodes eight values by the runtime parameters. A code takes `bits` bits.
template <int bits>
struct ByParams {
  using Codes = Bytes<bits>;
  static constexpr int kEights = 1;
  __device__ static Codes encode8(const EncodeParams& p, int64_t eight, const float (&x)[8]) {
    const bool isDrawn = p.rounding == Rounding::kStochastic && p.words == nullptr;
    const uint4 draw = isDrawn ? philox(eight, 0, p.random) : uint4{};
    Codes codes{};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t index = eight * 8 + i;
      const uint32_t random = p.words == nullptr ? castBits(draw, i) : index < p.count ? p.words[index] : 0;
      setElement<bits>(codes, i, encode(x[i], p.word, p.rounding, p.overflow, random));
    }
    return codes;
  }
};

template <Wide type, typename Encoder>
struct Encode {
  using Params = EncodeParams;
  using From = WideEight<type>;
  using To = typename Encoder::Codes;
  static constexpr int kEights = Encoder::kEights;

  __device__ explicit Encode(const EncodeParams& params) : p(params) {}
  __device__ To operator()(const From& source, int64_t eight) const {
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = wideAt<type>(source, i) * p.scale;
    return Encoder::encode8(p, eight, x);
  }

  const EncodeParams& p;
};

// Decodes codes of a format known at compile time.
template <uint32_t word>
struct Fast {
  using Codes = Bytes<storageBits(word)>;
  static constexpr int kEights = 2;
  __device__ static float decode1(uint32_t, uint32_t code) { return decodeTo<word>(code); }
};

// Decodes codes of any format. A code takes `bits` bits.
template <int bits>
struct ByWord {
  using Codes = Bytes<bits>;
  static constexpr int kEights = 1;
  __device__ static float decode1(uint32_t word, uint32_t code) { return decode(code, word); }
};

template <Wide type, typename Decoder>
struct Decode {
  using Params = DecodeParams;
  using From = typename Decoder::Codes;
  using To = WideEight<type>;
  static constexpr int kEights = Decoder::kEights;

  __device__ explicit Decode(const DecodeParams& p) : word(p.word), scale(p.scale != nullptr ? *p.scale : 1.0f) {}
  __device__ To operator()(const From& source, int64_t) const {
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = Decoder::decode1(word, elementOf(source, i)) * scale;
    return wideEight<type>(values);
  }

  uint32_t word;
  float scale;
};

template <typename Encoder>
cudaError_t encodeBy(const EncodeParams& p, cudaStream_t stream) {
  return withWide(p.xType, [&](auto type) { return launchMap<Encode<type.value, Encoder>>(p, stream); });
}

template <typename Decoder>
cudaError_t decodeBy(const DecodeParams& p, cudaStream_t stream) {
  return withWide(p.outType, [&](auto type) { return launchMap<Decode<type.value, Decoder>>(p, stream); });
}

}  // namespace

cudaError_t launchEncode(const EncodeParams& p, cudaStream_t stream) {
  const bool nearest = p.rounding == Rounding::kTiesToEven && p.overflow == Overflow::kSaturate;
  switch (nearest ? p.word : 0) {
    case format::kE4m3:
      return encodeBy<Nearest<format::kE4m3>>(p, stream);
    case format::kE5m2:
      return encodeBy<Nearest<format::kE5m2>>(p, stream);
    case format::kE2m1:
      return encodeBy<Nearest<format::kE2m1>>(p, stream);
    case format::kBf16:
      return encodeBy<Nearest<format::kBf16>>(p, stream);
    case format::kF16:
      return encodeBy<Nearest<format::kF16>>(p, stream);
  }
  switch (storageBits(p.word)) {
    case 4:
      return encodeBy<ByParams<4>>(p, stream);
    case 8:
      return encodeBy<ByParams<8>>(p, stream);
    case 16:
      return encodeBy<ByParams<16>>(p, stream);
    default:
      return encodeBy<ByParams<32>>(p, stream);
  }
}

cudaError_t launchDecode(const DecodeParams& p, cudaStream_t stream) {
  switch (p.word) {
    case format::kE4m3:
      return decodeBy<Fast<format::kE4m3>>(p, stream);
    case format::kE5m2:
      return decodeBy<Fast<format::kE5m2>>(p, stream);
    case format::kE2m1:
      return decodeBy<Fast<format::kE2m1>>(p, stream);
  }
  switch (storageBits(p.word)) {
    case 4:
      return decodeBy<ByWord<4>>(p, stream);
    case 8:
      return decodeBy<ByWord<8>>(p, stream);
    case 16:
      return decodeBy<ByWord<16>>(p, stream);
    default:
      return decodeBy<ByWord<32>>(p, stream);
  }
}

}  // namespace lockstep
