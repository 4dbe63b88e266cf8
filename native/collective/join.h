// Joins an NCCL communicator on a separate thread, because NCCL waits for all ranks and may not return.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "native/collective/library.h"
#include "native/collective/peers.h"

namespace lockstep {

struct CommOptions {
  nccl::UniqueId id;
  int rank = 0;
  int size = 0;
  // A flag that another thread sets to a nonzero value when the job has failed.
  int32_t* failed = nullptr;
  std::chrono::milliseconds timeout{0};
};

// State shared by the thread that joins and the thread that waits for it. The waiting thread may time out first.
struct Joining {
  // The bytes of one part of `scratch`. `scratch` has two parts for each rank.
  static constexpr size_t kScratch = 128;

  const nccl::Library& nccl;
  const CommOptions options;
  const int device;
  const cudaStream_t stream;
  // Device memory.
  uint8_t* const scratch;
  // Null if this rank does not copy. After joining also null if any rank does not.
  std::unique_ptr<Peers> peers = nullptr;
  PeerHello hello{};
  std::atomic<nccl::Comm> comm = nullptr;
  std::atomic<nccl::Result> result = nccl::kInProgress;
  // Set before the communicator is aborted.
  std::atomic<bool> isEnded = false;
};

// Joins the ranks, connects each with all others, and finds out whether they can copy to each other.
void joinRanks(const std::shared_ptr<Joining>& joining);

}  // namespace lockstep
