#include "native/core/exported.h"

#include <algorithm>
#include <iterator>

#include "native/core/failure.h"

namespace lockstep {

namespace {

constexpr uint64_t kAlignment = 256;
// Sizes of segments. A first small one serves to find out whether memory can be exported.
constexpr uint64_t kSmallSegment = uint64_t{2} << 20;
constexpr uint64_t kSegment = uint64_t{256} << 20;

uint64_t roundUp(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void* ExportedMemory::allocate(uint64_t bytes) {
  const uint64_t wanted = roundUp(std::max<uint64_t>(bytes, 1), kAlignment);
  const auto fits = [&](const auto& range) { return range.second >= wanted; };
  const auto smaller = [&](const auto& a, const auto& b) { return fits(a) && (!fits(b) || a.second < b.second); };
  auto best = std::min_element(free_.begin(), free_.end(), smaller);
  if (best == free_.end() || !fits(*best)) {
    if (!grow(wanted)) return nullptr;
    best = std::min_element(free_.begin(), free_.end(), smaller);
  }
  const auto [address, size] = *best;
  free_.erase(best);
  if (size > wanted) free_.emplace(address + wanted, size - wanted);
  used_.emplace(address, wanted);
  return reinterpret_cast<void*>(address);
}

bool ExportedMemory::free(uint64_t address) {
  const auto found = used_.find(address);
  if (found == used_.end()) return false;
  const auto [segment, of] = *segmentAt(address);
  uint64_t begin = address;
  uint64_t end = address + found->second;
  used_.erase(found);
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

std::optional<ExportedMemory::Place> ExportedMemory::placeOf(uint64_t address, uint64_t bytes) const {
  const auto segment = segmentAt(address);
  if (segment == segments_.end() || segment->second.bytes - (address - segment->first) < bytes) return std::nullopt;
  return Place{segment->second.handle, address - segment->first};
}

std::optional<ExportedMemory::Place> ExportedMemory::anySegment() {
  if (segments_.empty() && !grow(1)) return std::nullopt;
  return Place{segments_.begin()->second.handle, 0};
}

uint64_t ExportedMemory::reserved() const {
  uint64_t bytes = 0;
  for (const auto& [_, segment] : segments_) bytes += segment.bytes;
  return bytes;
}

void ExportedMemory::close() {
  for (const auto& [address, _] : segments_) ignore(cudaFree(reinterpret_cast<void*>(address)));
  segments_.clear();
  free_.clear();
  used_.clear();
}

bool ExportedMemory::grow(uint64_t bytes) {
  const uint64_t usual = segments_.empty() && bytes <= kSmallSegment ? kSmallSegment : kSegment;
  void* data = nullptr;
  // if a whole segment is too much, one of the size that is needed may not be
  for (const uint64_t size : {std::max(usual, roundUp(bytes, kSmallSegment)), roundUp(bytes, kSmallSegment)}) {
    Segment segment{size, {}};
    if (const cudaError_t error = cudaMalloc(&data, size); error != cudaSuccess) {
      ignore(error);
      continue;
    }
    if (const cudaError_t error = cudaIpcGetMemHandle(&segment.handle, data); error != cudaSuccess) {
      ignore(error);
      ignore(cudaFree(data));
      return false;
    }
    segments_.emplace(reinterpret_cast<uint64_t>(data), segment);
    free_.emplace(reinterpret_cast<uint64_t>(data), size);
    return true;
  }
  return false;
}

std::map<uint64_t, ExportedMemory::Segment>::const_iterator ExportedMemory::segmentAt(uint64_t address) const {
  const auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) return segments_.end();
  const auto segment = std::prev(after);
  return address - segment->first < segment->second.bytes ? segment : segments_.end();
}

}  // namespace lockstep
