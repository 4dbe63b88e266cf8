// Reads the arguments shared by a norm and a norm fused with quantization.
#pragma once

#include "kernels/rows/norm.h"
#include "native/core/call.h"

namespace lockstep {

template <typename Declared>
uint64_t elementsOf(const Call<Declared>& call) {
  return product({call.count("rows"), call.count("columns")});
}

// Reads all arguments of a norm except `out`, its type and `amax`.
template <typename Declared>
NormParams readNormSource(const Call<Declared>& call) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  NormParams p{};
  p.xType = call.wide("xType");
  p.x = call.pointer("x", bytesOf(elementsOf(call), bitsOf(p.xType)));
  p.parameterType = call.wide("parameterType");
  p.gamma = call.pointer("gamma", bytesOf(columns, bitsOf(p.parameterType)));
  p.beta = call.optional("beta", bytesOf(columns, bitsOf(p.parameterType)));
  p.mean = call.template optional<float>("mean", bytesOf(rows, 32));
  p.rstd = call.template pointer<float>("rstd", bytesOf(rows, 32));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  p.epsilon = call.f32("epsilon");
  p.zeroCentered = call.flag("zeroCentered");
  p.tickets = call.context().tickets();
  return p;
}

}  // namespace lockstep
