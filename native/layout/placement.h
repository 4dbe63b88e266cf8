// Reading the arguments that say where block scales lie.
#pragma once

#include "kernels/layout/placement.h"
#include "native/core/call.h"

namespace lockstep {

// The names of a placement's arguments under `prefix` (placement.ts).
struct PlacementNames {
  consteval PlacementNames(const char* prefix)
      : scales(prefix, "Scales"),
        scaleBytes(prefix, "ScaleBytes"),
        lines(prefix, "Lines"),
        blocks(prefix, "Blocks"),
        lineStride(prefix, "LineStride"),
        blockStride(prefix, "BlockStride"),
        swizzled(prefix, "Swizzled") {}

  Name scales;
  Name scaleBytes;
  Name lines;
  Name blocks;
  Name lineStride;
  Name blockStride;
  Name swizzled;
};

// The placement under a prefix. `elementBytes` is the size of one scale. Throws Failure ARGUMENT where scales would lie
// outside the allocation.
ScalePlacement readPlacement(const Call& call, PlacementNames names, uint64_t elementBytes);

}  // namespace lockstep
