// What instrumented sources call: bytes that say which loops and branches a run has been through. Each .cu file has its own
// bytes on the GPU; the host has one set. native/addon.cc exports them as `turns` in builds of `build-cuda.mjs --turns`.
#pragma once

#include <cstdint>

#include "kernels/turns.gen.h"

namespace lockstep::turns {

// Two bytes for each site: a loop's first and second turn, a branch not taken and taken.
constexpr int kBytes = 2 * kSites;
extern uint8_t host[kBytes];

// The bytes of one .cu file, in a list of all.
struct Unit {
  Unit(const char* unitName, bool (*unitRead)(uint8_t*));
  const char* name;
  // Copies the bytes of the current device; false where that fails.
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

// A turn of a loop, of which `taken` were taken since it was entered.
LOCKSTEP_BOTH inline void turn(int site, int& taken) {
  if (taken < 2) mark(2 * site + taken++);
}

LOCKSTEP_BOTH inline bool branch(int site, bool condition) {
  mark(2 * site + (condition ? 1 : 0));
  return condition;
}

}  // namespace lockstep::turns
