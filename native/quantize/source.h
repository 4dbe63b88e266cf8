// Reading the arguments that say what is quantized.
#pragma once

#include "native/core/call.h"

namespace lockstep {

// "x" of "xType", ["rows", "columns"], into the parameters of a kernel. Gives the number of elements.
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

}  // namespace lockstep
