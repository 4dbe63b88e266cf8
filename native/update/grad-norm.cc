// The norm of all gradients, and the factor that clips the gradients to a maximum norm.
#include "kernels/update/grad-norm.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

namespace {

void SquareSum(const Call<calls::SquareSum>& call) {
  const uint64_t count = call.count("count");
  const uint64_t pieces = count / kSquarePiece + (count % kSquarePiece != 0);
  SquareSumParams p{};
  p.type = call.wide("xType");
  p.x = call.pointer("x", bytesOf(count, bitsOf(p.type)));
  p.count = static_cast<int64_t>(count);
  p.workspace = call.workspace<float>(bytesOf(pieces, 32));
  p.out = call.pointer<float>("out", sizeof(float));
  call.check("squareSum", launchSquareSum(p, call.stream()));
}

void ClipFactor(const Call<calls::ClipFactor>& call) {
  const uint64_t count = call.count("count");
  ClipFactorParams p{};
  p.sums = call.pointer<float>("sums", bytesOf(count, 32));
  p.count = static_cast<int64_t>(count);
  p.maxNorm = call.f32("maxNorm");
  p.norm = call.pointer<float>("norm", sizeof(float));
  p.factor = call.pointer<float>("factor", sizeof(float));
  call.check("clipFactor", launchClipFactor(p, call.stream()));
}

}  // namespace

void registerGradNorm(Napi::Env env, Napi::Object exports) {
  expose<SquareSum>(env, exports);
  expose<ClipFactor>(env, exports);
}

}  // namespace lockstep
