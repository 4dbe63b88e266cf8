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

void PieceSums(const Call<calls::PieceSums>& call) {
  const uint64_t count = call.count("count");
  const uint64_t pieces = count / kSquarePiece + (count % kSquarePiece != 0);
  PieceSumsParams p{};
  p.type = call.wide("xType");
  p.x = call.pointer("x", bytesOf(count, bitsOf(p.type)));
  p.count = static_cast<int64_t>(count);
  p.sums = call.pointer<float>("sums", bytesOf(pieces, 32));
  call.check("pieceSums", launchPieceSums(p, call.stream()));
}

void SumPieces(const Call<calls::SumPieces>& call) {
  const uint64_t count = call.count("count");
  SumPiecesParams p{};
  p.sums = call.pointer<float>("sums", bytesOf(count, 32));
  p.count = static_cast<int64_t>(count);
  p.out = call.pointer<float>("out", sizeof(float));
  call.check("sumPieces", launchSumPieces(p, call.stream()));
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
  expose<PieceSums>(env, exports);
  expose<SumPieces>(env, exports);
  expose<ClipFactor>(env, exports);
}

}  // namespace lockstep
