// Reads the arguments that describe a placement: the address and the memory layout of an array of block scales.
#pragma once

#include <string_view>

#include "kernels/layout/placement.h"
#include "native/core/call.h"

namespace lockstep {

// The arguments that describe a placement.
struct PlacementSlots {
  Slot data;
  Slot bytes;
  Slot lines;
  Slot blocks;
  Slot lineStride;
  Slot blockStride;
  Slot swizzled;
};

// The names of a placement's arguments in a group (`scales` of shared-arguments.ts).
template <typename Declared>
class PlacementNames {
 public:
  consteval PlacementNames(const char* group) : PlacementNames(std::string_view(group)) {}

  constexpr const PlacementSlots& slots() const { return slots_; }

 private:
  template <Kind kind>
  using Of = Name<Declared, kind>;

  consteval PlacementNames(std::string_view group)
      : slots_{Of<Kind::kPointer>(group, ".data"),
               Of<Kind::kCount>(group, ".placement.bytes"),
               Of<Kind::kCount>(group, ".placement.lines"),
               Of<Kind::kCount>(group, ".placement.blocks"),
               Of<Kind::kCount>(group, ".placement.lineStride"),
               Of<Kind::kCount>(group, ".placement.blockStride"),
               Of<Kind::kFlag>(group, ".placement.swizzled")} {}

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

// Whether `count` scales in a row, each of 2^shift codes, cover `size` codes.
constexpr bool coverCodes(int64_t count, int64_t size, int shift) { return size == 0 || count > (size - 1) >> shift; }

}  // namespace lockstep
