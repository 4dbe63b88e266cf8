// Runs kernels on a CPU, one warp after another. The kernels may use no shared memory, and no GPU instructions except the
// collective operations below. The lanes of a warp run alternately: each runs up to its next collective operation. A warp whose
// lanes do not all take part in an operation aborts the process. The folder host/ has replacements for the headers that such
// kernels include.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <functional>

#define __launch_bounds__(...)

struct WarpIndex {
  uint32_t x = 0;
};
inline thread_local WarpIndex threadIdx;
inline thread_local WarpIndex blockIdx;

namespace standin {

// Calls `body` as each thread of `blocks` blocks of `threads` threads.
void launch(uint32_t blocks, uint32_t threads, const std::function<void()>& body);

// Waits for all lanes of the warp. Returns the values that they have passed, by lane. They are valid until the next call.
const uint32_t* exchange(uint32_t value);

}  // namespace standin

inline uint32_t __shfl_xor_sync(uint32_t, uint32_t value, int mask) {
  const uint32_t lane = threadIdx.x % 32;
  return standin::exchange(value)[lane ^ static_cast<uint32_t>(mask)];
}
inline uint32_t __shfl_down_sync(uint32_t, uint32_t value, int by) {
  const uint32_t from = threadIdx.x % 32 + static_cast<uint32_t>(by);
  return standin::exchange(value)[from < 32 ? from : threadIdx.x % 32];
}
inline float __shfl_sync(uint32_t, float value, int lane) {
  return std::bit_cast<float>(standin::exchange(std::bit_cast<uint32_t>(value))[lane % 32]);
}
inline uint32_t __reduce_max_sync(uint32_t, uint32_t value) {
  const uint32_t* values = standin::exchange(value);
  uint32_t largest = 0;
  for (int i = 0; i < 32; ++i) largest = values[i] > largest ? values[i] : largest;
  return largest;
}

// Device functions of kernels/core refer to these names, but such kernels do not call these functions.
float __fmaf_rn(float, float, float);
uint32_t __funnelshift_l(uint32_t, uint32_t, uint32_t);
inline uint32_t max(uint32_t a, uint32_t b) { return a > b ? a : b; }
inline uint32_t atomicMax(uint32_t* at, uint32_t value) {
  const uint32_t before = *at;
  if (value > before) *at = value;
  return before;
}
