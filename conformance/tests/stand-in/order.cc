#include "conformance/tests/stand-in/order.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace standin {

void fault(const char* what) {
  std::fprintf(stderr, "stand-in: %s\n", what);
  std::abort();
}

namespace {

// A vector clock: for each stream, the amount of its work that has happened before.
using Clock = std::map<cudaStream_t, uint64_t>;

void join(Clock& clock, const Clock& other) {
  for (const auto& [stream, count] : other) clock[stream] = std::max(clock[stream], count);
}

struct Block {
  uint64_t bytes;
  // The last read by each stream, as the stream's clock at that time.
  Clock reads;
  Clock writes;
};

std::mutex mutex;
std::map<cudaStream_t, Clock> streams;
std::map<cudaEvent_t, Clock> events;
// The work that the host has waited for.
Clock host;
std::map<uintptr_t, Block> blocks;
thread_local cudaStream_t current = nullptr;

bool isBehind(const Clock& earlier, const Clock& now) {
  return std::all_of(earlier.begin(), earlier.end(), [&](const auto& entry) {
    const auto found = now.find(entry.first);
    return found != now.end() && found->second >= entry.second;
  });
}

void accessOn(cudaStream_t stream, Block& block, Access access) {
  Clock& clock = streams[stream];
  join(clock, host);
  const uint64_t count = ++clock[stream];
  const bool writes = access == Access::kWrite;
  if (!isBehind(block.writes, clock) || (writes && !isBehind(block.reads, clock))) {
    fault("two streams use the same memory, and nothing orders them");
  }
  (writes ? block.writes : block.reads)[stream] = count;
}

}  // namespace

void on(cudaStream_t stream) { current = stream; }

void accesses(const void* data, Access access) {
  const std::lock_guard lock(mutex);
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return;
  auto& [begin, block] = *std::prev(after);
  if (address - begin < block.bytes) accessOn(current, block, access);
}

void allocated(const void* data, size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  Block& block = blocks[reinterpret_cast<uintptr_t>(data)] = {bytes, {}, {}};
  accessOn(stream, block, Access::kWrite);
}

void freed(const void* data, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  const auto found = blocks.find(reinterpret_cast<uintptr_t>(data));
  accessOn(stream, found->second, Access::kWrite);
  blocks.erase(found);
}

void records(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  Clock& clock = streams[stream];
  join(clock, host);
  events[event] = clock;
}

void forgets(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  events.erase(event);
}

void waits(cudaStream_t stream, cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  join(streams[stream], events[event]);
}

void hostWaits(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  join(host, streams[stream]);
}

void hostWaits(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  join(host, events[event]);
}

void hostWaitsForAll() {
  const std::lock_guard lock(mutex);
  for (const auto& [_, clock] : streams) join(host, clock);
}

}  // namespace standin
