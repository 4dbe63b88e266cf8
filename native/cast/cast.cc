// Casts between wide types and codes.
#include "kernels/cast/cast.h"

#include "kernels/core/format.h"
#include "native/addon.h"
#include "native/core/call.h"
#include "native/core/random.h"

namespace lockstep {

namespace {

void Encode(const Call<calls::Encode>& call) {
  const uint64_t count = call.count("count");
  EncodeParams p{};
  p.word = call.word("word");
  p.xType = call.wide("xType");
  p.x = call.pointer("x", bytesOf(count, bitsOf(p.xType)));
  p.out = call.pointer("out", bytesOf(count, storageBits(p.word)));
  p.rounding = call.member<Rounding>("rounding");
  p.overflow = call.member<Overflow>("overflow");
  p.random = readRandom(call);
  p.words = call.optional<uint32_t>("words", bytesOf(count, 32));
  p.scale = call.f32("scale");
  p.count = static_cast<int64_t>(count);
  call.check("encode", launchEncode(p, call.stream()));
}

void Decode(const Call<calls::Decode>& call) {
  const uint64_t count = call.count("count");
  DecodeParams p{};
  p.word = call.word("word");
  p.outType = call.wide("outType");
  p.x = call.pointer("x", bytesOf(count, storageBits(p.word)));
  p.out = call.pointer("out", bytesOf(count, bitsOf(p.outType)));
  p.scale = call.optional<float>("scale", sizeof(float));
  p.count = static_cast<int64_t>(count);
  call.check("decode", launchDecode(p, call.stream()));
}

// Sets all bytes of a range of device memory to one value.
void Fill(const Call<calls::Fill>& call) {
  const uint64_t bytes = call.count("bytes");
  void* to = call.pointer("to", bytes);
  const int value = static_cast<int>(call.bounded("value", 255));
  if (bytes > 0) call.check("fill", cudaMemsetAsync(to, value, bytes, call.stream()));
}

}  // namespace

void registerCast(Napi::Env env, Napi::Object exports) {
  expose<Encode>(env, exports);
  expose<Decode>(env, exports);
  expose<Fill>(env, exports);
}

}  // namespace lockstep
