#include "native/core/exported.h"

#include <algorithm>
#include <iterator>

#include "native/core/failure.h"
#include "native/core/fence.h"

namespace lockstep {

namespace {

constexpr uint64_t kAlignment = 256;
// Segment sizes. The small one tests whether memory can be exported.
constexpr uint64_t kSmallSegment = uint64_t{2} << 20;
constexpr uint64_t kSegment = uint64_t{256} << 20;

uint64_t roundUp(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void* ExportedMemory::allocate(uint64_t bytes) {
  if (void* data = allocateFree(bytes)) return data;
  return !isRetired_ && grow(bytes) ? allocateFree(bytes) : nullptr;
}

void* ExportedMemory::allocateFree(uint64_t bytes) {
  if (isRetired_) return nullptr;
  const uint64_t alignedBytes = roundUp(std::max<uint64_t>(bytes, 1), kAlignment);
  auto best = free_.end();
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    if (range->second >= alignedBytes && (best == free_.end() || range->second < best->second)) best = range;
  }
  if (best == free_.end()) return nullptr;
  const auto [address, size] = *best;
  free_.erase(best);
  if (size > alignedBytes) free_.emplace(address + alignedBytes, size - alignedBytes);
  used_.emplace(address, alignedBytes);
  forbidBeyond(address, bytes, alignedBytes);
  return reinterpret_cast<void*>(address);
}

bool ExportedMemory::free(uint64_t address) {
  const auto entry = used_.find(address);
  if (entry == used_.end()) return false;
  const auto [segment, of] = *segmentAt(address);
  uint64_t begin = address;
  uint64_t end = address + entry->second;
  forbidBeyond(address, 0, entry->second);
  used_.erase(entry);
  const auto next = free_.find(end);
  if (next != free_.end() && end < segment + of.bytes) {
    end += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first >= segment && before->first + before->second == begin) {
      begin = before->first;
      free_.erase(before);
    }
  }
  free_.emplace(begin, end - begin);
  return true;
}

std::optional<ExportedMemory::Location> ExportedMemory::locationOf(uint64_t address, uint64_t bytes) const {
  const auto segment = segmentAt(address);
  if (segment == segments_.end() || segment->second.bytes - (address - segment->first) < bytes) return std::nullopt;
  return Location{segment->second.handle, address - segment->first};
}

std::optional<cudaIpcMemHandle_t> ExportedMemory::anySegment() {
  if (segments_.empty() && !grow(1)) return std::nullopt;
  return segments_.begin()->second.handle;
}

uint64_t ExportedMemory::reserved() const {
  uint64_t bytes = 0;
  for (const auto& [_, segment] : segments_) bytes += segment.bytes;
  return bytes;
}

void ExportedMemory::trim() {
  tooLarge_ = UINT64_MAX;
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto freeRange = free_.find(segment->first);
    if (freeRange == free_.end() || freeRange->second != segment->second.bytes) {
      ++segment;
      continue;
    }
    free_.erase(freeRange);
    release(segment->first, segment->second.bytes);
    segment = segments_.erase(segment);
  }
}

void ExportedMemory::close() {
  for (const auto& [address, segment] : segments_) release(address, segment.bytes);
  segments_.clear();
  free_.clear();
  used_.clear();
}

void ExportedMemory::release(uint64_t segment, uint64_t bytes) {
  allow(segment, bytes);
  ignore(cudaFree(reinterpret_cast<void*>(segment)));
}

bool ExportedMemory::grow(uint64_t bytes) {
  const uint64_t minSize = roundUp(std::max<uint64_t>(bytes, 1), kSmallSegment);
  if (minSize >= tooLarge_) return false;
  const uint64_t preferredSize =
      segments_.empty() && minSize == kSmallSegment ? kSmallSegment : std::max(kSegment, minSize);
  void* data = nullptr;
  // if the device has no memory for a usual segment, try one of the requested size
  for (const uint64_t size : {preferredSize, minSize}) {
    Segment segment{size, {}};
    if (const cudaError_t error = cudaMalloc(&data, size); error != cudaSuccess) {
      ignore(error);
      continue;
    }
    if (const cudaError_t error = cudaIpcGetMemHandle(&segment.handle, data); error != cudaSuccess) {
      ignore(error);
      ignore(cudaFree(data));
      break;
    }
    segments_.emplace(reinterpret_cast<uint64_t>(data), segment);
    free_.emplace(reinterpret_cast<uint64_t>(data), size);
    forbidBeyond(reinterpret_cast<uint64_t>(data), 0, size);
    return true;
  }
  tooLarge_ = minSize;
  return false;
}

std::map<uint64_t, ExportedMemory::Segment>::const_iterator ExportedMemory::segmentAt(uint64_t address) const {
  const auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) return segments_.end();
  const auto segment = std::prev(after);
  return address - segment->first < segment->second.bytes ? segment : segments_.end();
}

}  // namespace lockstep
