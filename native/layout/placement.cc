#include "native/layout/placement.h"

#include <algorithm>

namespace lockstep {

ScalePlacement readPlacement(const AnyCall& call, const PlacementSlots& slots, uint64_t elementBytes) {
  ScalePlacement p;
  const uint64_t lines = call.count(slots.lines);
  const uint64_t blocks = call.count(slots.blocks);
  const uint64_t lineStride = call.count(slots.lineStride);
  const uint64_t blockStride = call.count(slots.blockStride);
  const uint64_t bytes = call.count(slots.bytes);
  p.swizzled = call.flag(slots.swizzled);
  uint64_t last = 0;
  if (p.swizzled) {
    last = product({(lines + 127) / 128, (blocks + 3) / 4, 512});
  } else if (lines > 0 && blocks > 0) {
    last = product({lines - 1, lineStride}) + product({blocks - 1, blockStride}) + 1;
  }
  p.data = call.pointer(slots.data, std::max(bytes, product({last, elementBytes})));
  p.lines = static_cast<int64_t>(lines);
  p.blocks = static_cast<int64_t>(blocks);
  p.lineStride = static_cast<int64_t>(lineStride);
  p.blockStride = static_cast<int64_t>(blockStride);
  p.clearBytes = bytes > product({lines, blocks, elementBytes}) ? static_cast<int64_t>(bytes) : 0;
  return p;
}

}  // namespace lockstep
