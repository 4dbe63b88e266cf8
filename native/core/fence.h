// Memory of a block that no tensor has: where device memory is the host's, in the build with AddressSanitizer that
// conformance/tests/stand-in describes, every access of it is reported. Elsewhere these do nothing.
#pragma once

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#endif

namespace lockstep {

inline void allow(uint64_t address, uint64_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(address), bytes);
}

// Allows the first `bytes` of a block of `all`, and no more.
inline void forbidBeyond(uint64_t address, uint64_t bytes, uint64_t all) {
  allow(address, bytes);
  ASAN_POISON_MEMORY_REGION(reinterpret_cast<void*>(address + bytes), all - bytes);
}

}  // namespace lockstep
