#include "kernels/quantize/hadamard/hadamard.h"

#include "native/addon.h"
#include "native/core/call.h"

namespace lockstep {

static void Hadamard(const Call<calls::Hadamard>& call) {
  HadamardParams p;
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  const uint64_t bytes = product({rows, columns, sizeof(uint16_t)});
  p.x = call.pointer<uint16_t>("x", bytes);
  p.out = call.pointer<uint16_t>("out", bytes);
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  p.signs = call.word("signs");
  call.check("hadamard", launchHadamard(p, call.stream()));
}

void registerHadamard(Napi::Env env, Napi::Object exports) { expose<Hadamard>(env, exports); }

}  // namespace lockstep
