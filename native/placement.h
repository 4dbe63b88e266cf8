// Reading the arguments that say where block scales lie.
#pragma once

#include <string>

#include "kernels/placement.h"
#include "native/call.h"

namespace lockstep {

// The placement under `prefix` (placement.ts): prefix + "Scales", "ScaleBytes", "Lines", "Blocks", "LineStride",
// "BlockStride", "Swizzled". `elementBytes` is the size of one scale. Throws Failure ARGUMENT where scales would lie
// outside the allocation.
ScalePlacement readPlacement(const Call& call, const std::string& prefix, uint64_t elementBytes);

}  // namespace lockstep
