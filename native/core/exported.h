// Device memory that other processes can map by CUDA IPC, unlike memory of the pool. It is allocated from the device in segments.
// A segment is kept as long as other processes may have mapped it.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>

namespace lockstep {

class ExportedMemory {
 public:
  // A position in a segment, in the form in which other processes map it.
  struct Location {
    cudaIpcMemHandle_t segment;
    uint64_t offset;
  };

  // Returns memory aligned to 256 bytes, or null if the device has none or cannot export it. Unlike the pool, it does not order
  // streams: a caller that reuses memory must enqueue its work after the earlier uses.
  void* allocate(uint64_t bytes);
  // As `allocate`, from existing segments only.
  void* allocateFree(uint64_t bytes);
  // Returns whether `address` is an allocation of this memory, and frees it.
  bool free(uint64_t address);
  // Returns nothing if the bytes do not lie in this memory.
  std::optional<Location> locationOf(uint64_t address, uint64_t bytes) const;
  // Returns a segment, allocating one if there is none; nothing if that is not possible.
  std::optional<cudaIpcMemHandle_t> anySegment();
  // The total bytes of all segments.
  uint64_t reserved() const;
  // Returns segments without allocations to the device. No other process may have mapped them.
  void trim();
  // Ends allocation: other processes may write to free memory. May be called on any thread.
  void retire() { isRetired_ = true; }
  // Returns all memory to the device.
  void close();

 private:
  struct Segment {
    uint64_t bytes;
    cudaIpcMemHandle_t handle;
  };

  bool grow(uint64_t bytes);
  void release(uint64_t segment, uint64_t bytes);
  std::map<uint64_t, Segment>::const_iterator segmentAt(uint64_t address) const;

  // Segments, free ranges and allocations by their first address. Adjacent free ranges of a segment are merged.
  std::map<uint64_t, Segment> segments_;
  std::map<uint64_t, uint64_t> free_;
  std::map<uint64_t, uint64_t> used_;
  // The smallest request that the device could not satisfy since the last trim().
  uint64_t tooLarge_ = UINT64_MAX;
  std::atomic<bool> isRetired_ = false;
};

}  // namespace lockstep
