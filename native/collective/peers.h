// Copies between the GPUs of one host. A rank offers its memory to another rank, which maps it and copies to it. The copy engines
// of a GPU move the data, so a copy needs no multiprocessor. NCCL's kernels do: while products occupy all multiprocessors, an
// exchange by NCCL waits for a product to end, and the next product waits for the exchange.
//
// Ranks announce offers in a page of host memory; a host waits until the other rank has made its offer. GPUs synchronise through
// counts in the same page: one stream writes a count, and a stream of another GPU waits for it.
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

// The message of a rank to all others before they copy: the location of the page, and a segment of memory for testing whether
// they can map it.
struct PeerHello {
  int32_t process = 0;
  int32_t file = -1;
  uint64_t token = 0;
  // The minimum size of a copy in bytes; UINT64_MAX if this rank does not copy.
  uint64_t minBytes = UINT64_MAX;
  cudaIpcMemHandle_t segment{};
};

// The minimum size in bytes of copies between GPUs on the side stream: LOCKSTEP_PEER_COPIES of the environment, a number of bytes
// or `off` (UINT64_MAX); default 1. Throws Failure ARGUMENT for anything else.
uint64_t minCopyBytes();

class Peers {
 public:
  // The maximum number of ranks of a group that copies.
  static constexpr int kMaxRanks = 16;

  Peers(int rank, int size);
  // Calls leave().
  ~Peers();
  Peers(const Peers&) = delete;

  // This rank's message. Without a segment it says that this rank does not copy. Rank 0 creates the page.
  PeerHello hello(uint64_t minBytes, const std::optional<cudaIpcMemHandle_t>& segment);
  // Takes the messages of all ranks, in order. Returns whether this rank can copy to each of them and exchange counts with each,
  // which it tests on a stream. The ranks copy only if all of them can.
  bool meet(const std::vector<PeerHello>& hellos, cudaStream_t stream);
  // Called after all ranks have met. `allCanCopy`: whether all of them can copy.
  void finishMeeting(bool allCanCopy);
  uint64_t minBytes() const { return minBytes_; }

  // Offers `bytes` bytes at `address` to a rank. If this memory is not exported, the offer says to use NCCL. Enqueues the
  // permission to write to the memory. `number` becomes the number of the copy, if there will be one. There must be room for an
  // offer. If an error is returned, no offer was made.
  cudaError_t offer(int peer, const ExportedMemory& memory, uint64_t address, uint64_t bytes, cudaStream_t stream,
                    std::optional<uint32_t>* number);
  bool hasRoom(int peer) const;
  // Whether a rank's next offer has been made, with `bytes` bytes.
  bool isOffered(int peer, uint64_t bytes) const;
  // An offer of another rank. `to` is null if the sender is to use NCCL.
  struct TakenOffer {
    int peer;
    uint32_t number;
    void* to;
  };
  // Takes the next offer, which must have been made. Returns an error if the offered memory cannot be mapped.
  cudaError_t take(int peer, TakenOffer* taken);

  // Enqueues a copy to offered memory. It starts when the receiver's stream permits.
  cudaError_t copy(const TakenOffer& taken, const void* from, uint64_t bytes, cudaStream_t stream);
  // Makes the stream wait until copy `number` of a rank, or a later one, has arrived.
  cudaError_t waitArrived(int peer, uint32_t number, cudaStream_t stream);

  // Ends all present and future waits of this rank's streams; missing copies count as arrived. Copies to another rank still wait
  // until that rank permits them, has exited, or does not answer for kReleaseTimeout. May be called on any thread.
  void end();
  // Unmaps the memory of other ranks, which enqueued work must no longer use, and waits for a limited time until they have
  // unmapped this rank's. A second call does nothing.
  void leave();

 private:
  struct Page;
  struct Offer;
  enum class Count { kReady, kArrived };

  // The state between this rank and another. A copy has the number of its offer.
  struct Peer {
    uint64_t offersMade = 0;
    uint64_t offersTaken = 0;
    // The numbers of the last copies offered to and by this rank. end() reads them on another thread.
    std::atomic<uint32_t> outgoing = 0;
    std::atomic<uint32_t> incoming = 0;
    // Mapped segments, by their handles.
    std::map<std::string, uint64_t> mapped;
    // A file descriptor of the process; -1 if there is none.
    int process = -1;
  };

  bool openPage(const PeerHello& first);
  bool tryCounts(cudaStream_t stream);
  cudaError_t map(Peer& peer, const cudaIpcMemHandle_t& segment, uint64_t* address);
  uint64_t pageBytes() const;
  Page& page() const;
  Offer& offerAt(int from, int to, uint64_t number) const;
  // The address of a count: on the host, or on the GPU if `base` is the page's address there.
  uint64_t countAt(Count kind, int sender, int receiver, uint64_t base) const;
  cudaError_t write(Count kind, int sender, int receiver, uint32_t value, cudaStream_t stream);
  cudaError_t wait(Count kind, int sender, int receiver, uint32_t value, cudaStream_t stream);
  bool isGone(int peer) const;
  // Repeatedly sets the counts that this rank's streams wait for, because other GPUs may still write older counts.
  void release();
  void releaseOnce(bool isPatient);

  const int rank_;
  const int size_;
  int file_ = -1;
  uint64_t minBytes_ = UINT64_MAX;
  uint8_t* page_ = nullptr;
  // The page's address on the GPU; 0 if it is not registered.
  uint64_t deviceAddress_ = 0;
  std::vector<Peer> peers_;

  // Guards the three members below.
  std::mutex mutex_;
  std::thread releaseThread_;
  bool hasLeft_ = false;
  bool allCanCopy_ = false;
  std::atomic<bool> isLeaving_ = false;
};

}  // namespace lockstep
