// Barriers of warpgroups and tiles in shared memory, for all kernels of attention on Hopper's tensor cores.
#pragma once

#include "kernels/device/device.cuh"
#include "kernels/device/ring.cuh"
#include "kernels/device/tensor-map.cuh"
#include "kernels/device/wgmma.cuh"

namespace lockstep {

constexpr int kGroupThreads = 128;

// Waits for all threads of a warpgroup. `id` is the number of the barrier, from 1.
__device__ inline void syncGroup(int id) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "n"(kGroupThreads) : "memory");
}

// Whether `value` is true in any thread of a warpgroup.
__device__ inline bool anyOf(bool value, int id) {
  uint32_t isAny;
  asm volatile("{.reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.cta.red.or.pred q, %2, %3, p; selp.u32 %0, 1, 0, q;}"
               : "=r"(isAny)
               : "r"(static_cast<uint32_t>(value)), "r"(id), "n"(kGroupThreads)
               : "memory");
  return isAny != 0;
}

// A position in a ring of stages, which are used in order. The parity changes with every pass.
template <int stages>
struct StagePosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void next() {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Copies the box at (0, head, row, item) and the following chunks of 64 columns.
template <int chunks>
__device__ inline void copyTile(const CUtensorMap* map, uint64_t* barrier, uint32_t to, int chunkBytes, int head,
                                int row, int item) {
#pragma unroll
  for (int c = 0; c < chunks; ++c) copyBox(map, barrier, to + c * chunkBytes, c * kChunkColumns, head, row, item);
}

// Turns of `groups` warpgroups, in ascending order. Their barriers have the numbers kFirstTurn, kFirstTurn + 1, ...
constexpr int kFirstTurn = 8;

__device__ inline void giveTurn(int group) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(kFirstTurn + group), "n"(2 * kGroupThreads) : "memory");
}

// Starts the first turn: the last warpgroup passes the turn to the first one.
template <int groups>
__device__ inline void openTurns(int group) {
  if (group == groups - 1) giveTurn(0);
}

__device__ inline void awaitTurn(int group) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(kFirstTurn + group), "n"(2 * kGroupThreads) : "memory");
}

// Ends a turn and passes it to the next warpgroup. At its last turn, the last warpgroup does not pass it.
template <int groups>
__device__ inline void passTurn(int group, bool isLast) {
  if (group + 1 < groups) {
    giveTurn(group + 1);
  } else if (!isLast) {
    giveTurn(0);
  }
}

// Whether one of two packed values is not finite.
template <Wide type>
__device__ inline bool hasNonFinite(uint32_t pair) {
  constexpr uint32_t kExponents = type == Wide::kBf16 ? 0x7f807f80u : 0x7c007c00u;
  constexpr uint32_t kUnit = type == Wide::kBf16 ? 0x00800080u : 0x04000400u;
  return (((pair & kExponents) + kUnit) & 0x80008000u) != 0;
}

// Zeroes the rows from `count` on of a tile of `rows` rows, so that the tile can be multiplied. Returns whether this thread
// found an element in the other rows that is not finite. All threads of a warpgroup call it.
template <Wide type, int chunks, int rows>
__device__ inline bool guardRows(uint32_t tile, int count, int thread, int barrier) {
  constexpr int kUnits = rows * kChunkPitch / 16;
  bool hasNonFiniteElement = false;
#pragma unroll
  for (int c = 0; c < chunks; ++c) {
#pragma unroll 4
    for (int unit = thread; unit < kUnits; unit += kGroupThreads) {
      const uint32_t address = tile + c * rows * kChunkPitch + unit * 16;
      if (unit / (kChunkPitch / 16) >= count) {
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0u) : "memory");
      } else {
        uint32_t x[4];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(address)
                     : "memory");
#pragma unroll
        for (const uint32_t pair : x) hasNonFiniteElement |= hasNonFinite<type>(pair);
      }
    }
  }
  if (count < rows) {
    showInitialized();
    syncGroup(barrier);
  }
  return hasNonFiniteElement;
}

// Adds the tile of 64 rows that begins at `row` to the list of tiles that the plain kernel computes (plain.h). Does nothing if
// the item has no such row; it has `rows` rows.
__device__ inline void leaveTile(int32_t* list, int item, int rows, int row) {
  const int tiles = (rows + 63) / 64;
  if (row >= rows) return;
  list[1 + atomicAdd(list, 1)] = item * tiles + row / 64;
}

// Raises a maximum in memory atomically. No value is NaN or -0.
__device__ inline void raiseTo(float* maximum, float value) {
  if (value >= 0) {
    atomicMax(reinterpret_cast<int*>(maximum), __float_as_int(value));
  } else {
    atomicMin(reinterpret_cast<unsigned*>(maximum), __float_as_uint(value));
  }
}

}  // namespace lockstep
