// Makes unused memory of an allocation inaccessible, in builds with AddressSanitizer. There, device memory is host memory
// (conformance/tests/stand-in). In other builds these functions do nothing.
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

// Makes the first `bytes` bytes of an allocation of `all` bytes accessible, and the rest inaccessible.
inline void forbidBeyond(uint64_t address, uint64_t bytes, uint64_t all) {
  allow(address, bytes);
  ASAN_POISON_MEMORY_REGION(reinterpret_cast<void*>(address + bytes), all - bytes);
}

}  // namespace lockstep
