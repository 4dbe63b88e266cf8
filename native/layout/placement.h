// Reads the arguments that describe a placement: the address and the memory layout of an array of block scales.
#pragma once

#include <string_view>

#include "kernels/layout/placement.h"
#include "native/core/call.h"

namespace lockstep {

// The arguments that describe a placement.
struct PlacementSlots {
  Slot scales;
  Slot bytes;
  Slot lines;
  Slot blocks;
  Slot lineStride;
  Slot blockStride;
  Slot swizzled;
};

// The names of a placement's arguments in a group (shared-arguments.ts). The group "" means that they are not in a
// group.
template <typename Declared>
class PlacementNames {
 public:
  consteval PlacementNames(const char* group) : PlacementNames(std::string_view(group), *group == 0 ? 1 : 0) {}

  constexpr const PlacementSlots& slots() const { return slots_; }

 private:
  template <Kind kind>
  using Of = Name<Declared, kind>;

  // Without a group, the first `skipped` characters (the dot) of each name are omitted.
  consteval PlacementNames(std::string_view group, size_t skipped)
      : slots_{Of<Kind::kPointer>(group, std::string_view(".scales").substr(skipped)),
               Of<Kind::kCount>(group, std::string_view(".placement.bytes").substr(skipped)),
               Of<Kind::kCount>(group, std::string_view(".placement.lines").substr(skipped)),
               Of<Kind::kCount>(group, std::string_view(".placement.blocks").substr(skipped)),
               Of<Kind::kCount>(group, std::string_view(".placement.lineStride").substr(skipped)),
               Of<Kind::kCount>(group, std::string_view(".placement.blockStride").substr(skipped)),
               Of<Kind::kFlag>(group, std::string_view(".placement.swizzled").substr(skipped))} {}

  PlacementSlots slots_;
};

// Reads a placement. `elementBytes` is the size of one scale. Throws Failure ARGUMENT if scales would lie outside the
// allocation.
ScalePlacement readPlacement(const AnyCall& call, const PlacementSlots& slots, uint64_t elementBytes);

template <typename Declared>
ScalePlacement readPlacement(const Call<Declared>& call, std::type_identity_t<PlacementNames<Declared>> names,
                             uint64_t elementBytes) {
  return readPlacement(call, names.slots(), elementBytes);
}

}  // namespace lockstep
