// Helpers of the stand-ins for kernels. They read or write the first, middle and last bytes of every range that the
// kernel would access; AddressSanitizer checks these accesses. They abort the process if the kernel's widest access
// would be misaligned, or would race with work on another stream.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "conformance/tests/stand-in/order.h"
#include "kernels/core/contract.gen.h"
#include "kernels/layout/placement.h"

namespace standin {

inline uint64_t bytesOf(int64_t count, uint64_t bits) { return (static_cast<uint64_t>(count) * bits + 7) / 8; }
inline uint64_t widthOf(lockstep::Wide type) { return type == lockstep::Wide::kF32 ? 32 : 16; }

inline void aligned(const void* data, uint64_t bytes) {
  uint64_t width = 16;
  while (width > bytes) width /= 2;
  if (reinterpret_cast<uintptr_t>(data) % width != 0) fault("a misaligned address");
}

// Reads the first, the middle and the last byte of [data, data + bytes), unless data is null or bytes is 0. Aborts if
// data is misaligned.
inline void reads(const void* data, uint64_t bytes) {
  if (!data || bytes == 0) return;
  aligned(data, bytes);
  accesses(data, Access::kRead);
  const auto* at = static_cast<const volatile uint8_t*>(data);
  static_cast<void>(at[0]);
  static_cast<void>(at[bytes / 2]);
  static_cast<void>(at[bytes - 1]);
}

inline void writes(void* data, uint64_t bytes) {
  if (!data || bytes == 0) return;
  aligned(data, bytes);
  accesses(data, Access::kWrite);
  auto* at = static_cast<volatile uint8_t*>(data);
  for (const uint64_t i : {uint64_t{0}, bytes / 2, bytes - 1}) at[i] = 0x5a;
}

inline void readsWide(const void* data, lockstep::Wide type, int64_t count) { reads(data, bytesOf(count, widthOf(type))); }
inline void writesWide(void* data, lockstep::Wide type, int64_t count) { writes(data, bytesOf(count, widthOf(type))); }
inline void readsF32(const void* data, int64_t count) { reads(data, bytesOf(count, 32)); }
inline void writesF32(void* data, int64_t count) { writes(data, bytesOf(count, 32)); }

// Calls touch(address, bytes) for the four corner scales of [lines, blocks].
template <typename Touch>
void scales(const lockstep::ScalePlacement& p, int64_t lines, int64_t blocks, int64_t bytes, Touch touch) {
  auto* data = static_cast<uint8_t*>(p.data);
  if (lines == 0 || blocks == 0) return;
  for (const int64_t line : {int64_t{0}, lines - 1}) {
    for (const int64_t block : {int64_t{0}, blocks - 1}) {
      touch(data + lockstep::scaleOffset(p, line, block) * bytes, static_cast<uint64_t>(bytes));
    }
  }
}

inline void readsScales(const lockstep::ScalePlacement& p, int64_t lines, int64_t blocks, int64_t bytes) {
  scales(p, lines, blocks, bytes, [](void* at, uint64_t count) { reads(at, count); });
}

inline void writesScales(const lockstep::ScalePlacement& p, int64_t lines, int64_t blocks, int64_t bytes) {
  writes(p.data, static_cast<uint64_t>(p.clearBytes));
  scales(p, lines, blocks, bytes, [](void* at, uint64_t count) { writes(at, count); });
}

}  // namespace standin
