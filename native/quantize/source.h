// Reads the arguments that describe the source of a quantization.
#pragma once

#include "native/core/call.h"

namespace lockstep {

// Reads "x", "xType", "rows" and "columns" into the parameters of a kernel. Returns the number of elements.
template <typename Declared, typename Params>
uint64_t readSource(const Call<Declared>& call, Params& p) {
  const uint64_t rows = call.count("rows");
  const uint64_t columns = call.count("columns");
  const uint64_t count = product({rows, columns});
  p.type = call.wide("xType");
  p.x = call.pointer("x", bytesOf(count, bitsOf(p.type)));
  p.rows = static_cast<int64_t>(rows);
  p.columns = static_cast<int64_t>(columns);
  return count;
}

// As readSource. Also reads "rule", "scaling" and "noop", which the calls of all quantizers have.
template <typename Declared, typename Params>
uint64_t readQuantized(const Call<Declared>& call, Params& p) {
  const uint64_t count = readSource(call, p);
  p.rule = call.template member<ScaleRule>("rule");
  const uint32_t scaling = call.word("scaling");
  p.scaling = static_cast<decltype(p.scaling)>(scaling);
  if (p.scaling != scaling) throw Failure{"ARGUMENT", "scaling has bits that no element scaling has"};
  p.noop = call.template optional<float>("noop", sizeof(float));
  return count;
}

}  // namespace lockstep
