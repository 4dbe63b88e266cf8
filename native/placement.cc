#include "native/placement.h"

#include <algorithm>

namespace lockstep {

ScalePlacement readPlacement(const Call& call, const std::string& prefix, uint64_t elementBytes) {
  const auto count = [&](const char* name) { return call.count((prefix + name).c_str()); };
  ScalePlacement p;
  const uint64_t lines = count("Lines");
  const uint64_t blocks = count("Blocks");
  const uint64_t lineStride = count("LineStride");
  const uint64_t blockStride = count("BlockStride");
  const uint64_t bytes = count("ScaleBytes");
  p.swizzled = call.flag((prefix + "Swizzled").c_str());
  uint64_t last = 0;
  if (p.swizzled) {
    last = product({(lines + 127) / 128, (blocks + 3) / 4, 512});
  } else if (lines > 0 && blocks > 0) {
    last = product({lines - 1, lineStride}) + product({blocks - 1, blockStride}) + 1;
  }
  p.data = call.pointer((prefix + "Scales").c_str(), std::max(bytes, product({last, elementBytes})));
  p.lines = static_cast<int64_t>(lines);
  p.blocks = static_cast<int64_t>(blocks);
  p.lineStride = static_cast<int64_t>(lineStride);
  p.blockStride = static_cast<int64_t>(blockStride);
  p.clearBytes = bytes > product({lines, blocks, elementBytes}) ? static_cast<int64_t>(bytes) : 0;
  return p;
}

}  // namespace lockstep
