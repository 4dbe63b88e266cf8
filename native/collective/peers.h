// Copies between the GPUs of one host. A rank offers memory of its own, which another rank has mapped and copies to. The
// copy engines of a GPU move the data, so a copy needs no multiprocessor, as NCCL's kernels do: beside products, which
// occupy all of them, an exchange of NCCL waits for a product to end, and the next product waits for the exchange.
//
// Ranks tell each other of their offers in a page of host memory; a host waits until the other one has made its offer. The
// GPUs count in the same page how far they are: a stream writes a count, and a stream of another GPU waits for it.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "native/core/exported.h"

namespace lockstep {

// What ranks tell each other before they copy: where the page is, and a segment of memory by which they try whether they
// can map it.
struct PeerHello {
  int32_t process = 0;
  int32_t file = -1;
  uint64_t token = 0;
  // The fewest bytes that are copied; UINT64_MAX if this rank does not copy.
  uint64_t least = UINT64_MAX;
  cudaIpcMemHandle_t segment{};
};

// The fewest bytes that are copied between GPUs on the side stream: LOCKSTEP_PEER_COPIES of the environment, a number of
// bytes or `off` (UINT64_MAX), by default 1. Throws Failure ARGUMENT for anything else.
uint64_t leastCopied();

class Peers {
 public:
  // The largest group that copies.
  static constexpr int kMostRanks = 16;

  Peers(int rank, int size);
  // Calls leave().
  ~Peers();
  Peers(const Peers&) = delete;

  // What this rank tells; without a segment, that it does not copy. Rank 0 creates the page.
  PeerHello hello(uint64_t least, const std::optional<cudaIpcMemHandle_t>& segment);
  // Takes what all ranks told, in order. Returns whether this rank can copy to each of them and be told of by each, which
  // it tries on a stream. The ranks copy only if all of them can.
  bool meet(const std::vector<PeerHello>& all, cudaStream_t stream);
  // Called once all ranks have met, with whether all of them can copy.
  void met(bool canAll);
  uint64_t least() const { return least_; }

  // Tells a rank where it can copy `bytes` bytes to, or, if this memory is not exported, that NCCL is to send. Enqueues
  // that this memory may be written from then on. `number` becomes that of the copy, if there will be one. There must be
  // room for an offer. If an error is returned, no offer was made.
  cudaError_t offer(int peer, const ExportedMemory& memory, uint64_t address, uint64_t bytes, cudaStream_t stream,
                    std::optional<uint32_t>* number);
  bool hasRoom(int peer) const;
  // Whether a rank's next offer is made, and is one of `bytes` bytes.
  bool isOffered(int peer, uint64_t bytes) const;
  // An offer of another rank. `to` is null if NCCL is to send.
  struct Taken {
    int peer;
    uint32_t number;
    void* to;
  };
  // Takes the next offer, which must be made. Returns an error if the memory that is offered cannot be mapped.
  cudaError_t take(int peer, Taken* taken);

  // Enqueues a copy to memory that a rank offered, once that may be written.
  cudaError_t copy(const Taken& taken, const void* from, uint64_t bytes, cudaStream_t stream);
  // Makes the stream wait until copy `number` of a rank has arrived, or a later one.
  cudaError_t waitArrived(int peer, uint32_t number, cudaStream_t stream);

  // Ends what this rank's streams wait for, now and later: what was not copied yet counts as arrived. Copies to other ranks
  // still wait until those let them write, or are gone, or do not answer for kPatience. It may be called on any thread.
  void end();
  // Unmaps the memory of other ranks, which nothing enqueued may use any more, and waits for a while until they have
  // unmapped that of this one. A second call does nothing.
  void leave();

 private:
  struct Page;
  struct Offer;
  enum class Count { kReady, kArrived };

  // What happened between this rank and another one. A copy has the number of the offer that it was made for.
  struct Peer {
    uint64_t offered = 0;
    uint64_t taken = 0;
    // The numbers of the last copies that were offered to and by this rank. end() reads them on another thread.
    std::atomic<uint32_t> outgoing = 0;
    std::atomic<uint32_t> incoming = 0;
    // Segments that were mapped, by their handles.
    std::map<std::string, uint64_t> mapped;
    // Refers to the process; -1 if that is not possible.
    int process = -1;
  };

  bool openPage(const PeerHello& first);
  bool tryCounts(cudaStream_t stream);
  cudaError_t map(Peer& peer, const cudaIpcMemHandle_t& segment, uint64_t* address);
  uint64_t pageBytes() const;
  Page& page() const;
  Offer& offerAt(int from, int to, uint64_t number) const;
  // The address of a count on this host, or with the page's address on the GPU as `base`, there.
  uint64_t countAt(Count which, int sender, int receiver, uint64_t base) const;
  cudaError_t write(Count which, int sender, int receiver, uint32_t value, cudaStream_t stream);
  cudaError_t wait(Count which, int sender, int receiver, uint32_t value, cudaStream_t stream);
  bool isGone(int peer) const;
  // Sets what this rank's streams wait for, again and again, since other GPUs may still write older counts.
  void release();
  void releaseOnce(bool isPatient);

  const int rank_;
  const int size_;
  int file_ = -1;
  uint64_t least_ = UINT64_MAX;
  uint8_t* page_ = nullptr;
  // The page's address on the GPU; 0 if it is not registered.
  uint64_t onDevice_ = 0;
  std::vector<Peer> peers_;

  // Guards the three members below.
  std::mutex mutex_;
  std::thread releasing_;
  bool hasLeft_ = false;
  bool canAll_ = false;
  std::atomic<bool> isLeaving_ = false;
};

}  // namespace lockstep
