// Functions that instrumented sources call. They set bytes that record which loops and branches have run. Each .cu file
// has a set of bytes on the GPU, and the host has one. native/addon.cc exports them as `turns` in builds of
// `build-cuda.mjs --turns`.
#pragma once

#include <cstdint>

#include "kernels/turns.gen.h"

namespace lockstep::turns {

// Each site has two bytes: for a loop its first and second iteration, for a branch "not taken" and "taken".
constexpr int kBytes = 2 * kSites;
extern uint8_t host[kBytes];

// The bytes of one .cu file, as an element of a linked list.
struct Unit {
  Unit(const char* unitName, bool (*unitRead)(uint8_t*));
  const char* name;
  // Copies the bytes from the current device; returns false if that fails.
  bool (*read)(uint8_t*);
  const Unit* next;
};
const Unit* units();

#ifdef __CUDACC__
static __device__ uint8_t device[kBytes];
[[maybe_unused]] static const Unit unit(LOCKSTEP_UNIT, [](uint8_t* to) {
  const bool done = cudaMemcpyFromSymbol(to, device, kBytes) == cudaSuccess;
  cudaGetLastError();
  return done;
});
#define LOCKSTEP_BOTH __host__ __device__
#else
#define LOCKSTEP_BOTH
#endif

LOCKSTEP_BOTH inline void mark(int byte) {
#ifdef __CUDA_ARCH__
  if (!device[byte]) device[byte] = 1;
#else
  host[byte] = 1;
#endif
}

// Records an iteration of loop `site`. `taken` counts the iterations since the loop was entered; only the first two are
// recorded.
LOCKSTEP_BOTH inline void turn(int site, int& taken) {
  if (taken < 2) mark(2 * site + taken++);
}

LOCKSTEP_BOTH inline bool branch(int site, bool condition) {
  mark(2 * site + (condition ? 1 : 0));
  return condition;
}

}  // namespace lockstep::turns
