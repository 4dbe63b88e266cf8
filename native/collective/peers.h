// Copies between the GPUs of one host. A rank offers memory of its own, which another rank has mapped and copies to. The
// copy engines of a GPU move the data, so a copy needs no multiprocessor, which NCCL's kernels do: beside products, which
// occupy all of them, an exchange of NCCL waits for a product to end, and the next product for it.
//
// Ranks tell each other of their offers in a page of host memory. The GPUs count in the same page how far they are: a
// stream writes a count, and a stream of another GPU waits for it. Thus neither host nor GPU waits for the other one.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
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

// The fewest bytes that are copied between GPUs inside of a side stream: LOCKSTEP_PEER_COPIES of the environment, which is
// a number of bytes or `off`. Throws Failure ARGUMENT for anything else.
uint64_t leastCopied();

class Peers {
 public:
  // The largest group that copies.
  static constexpr int kMostRanks = 16;

  Peers(int rank, int size);
  ~Peers();
  Peers(const Peers&) = delete;

  // What this rank tells. Rank 0 creates the page.
  PeerHello hello(uint64_t least, const ExportedMemory::Place* segment);
  // Takes what all ranks told, in order. Returns whether this rank can copy to each of them and be told of by each. The
  // ranks copy only if all of them can.
  bool meet(const std::vector<PeerHello>& all);
  // Closes the file of the page, once all ranks have met.
  void met();
  uint64_t least() const { return least_; }

  // Tells a rank where it can copy `bytes` bytes to, or, if this memory is not exported, that NCCL is to send. Returns
  // whether it can copy. There must be room for an offer.
  bool offer(int peer, const ExportedMemory& memory, uint64_t address, uint64_t bytes);
  bool hasRoom(int peer) const;
  // Whether a rank's next offer is made, and is one of `bytes` bytes.
  bool isOffered(int peer, uint64_t bytes) const;
  // Takes the next offer, which must be made. `to` becomes null if NCCL is to send. Returns an error if the memory that is
  // offered cannot be mapped.
  cudaError_t take(int peer, void** to);

  // Enqueues that this rank's memory may now be written by what a rank copies next.
  cudaError_t writeReady(int peer, cudaStream_t stream);
  // Enqueues a copy to memory that a rank offered, once that is ready.
  cudaError_t copy(int peer, void* to, const void* from, uint64_t bytes, cudaStream_t stream);
  // Makes the stream wait until what a rank copies has arrived. Every writeReady needs one.
  cudaError_t waitArrived(int peer, cudaStream_t stream);

  // Ends all that the streams of this rank wait for. What was not copied has then not arrived. Other ranks may still write
  // older counts; call it until the streams are done. It may be called on any thread.
  void release();

 private:
  struct Page;
  struct Offer;

  bool openPage(const PeerHello& first);
  uint64_t pageBytes() const;
  Offer& offerAt(int from, int to, uint64_t number) const;
  // The address of a count on this host, or with `base` on the GPU. `receiver` waits for what `sender` copies.
  enum class Count { kReady, kArrived };
  uint64_t countAt(Count which, int sender, int receiver, uint64_t base) const;
  cudaError_t write(Count which, int sender, int receiver, uint32_t value, cudaStream_t stream);
  cudaError_t wait(Count which, int sender, int receiver, uint32_t value, cudaStream_t stream);

  // What happened between this rank and another one.
  struct Peer {
    uint64_t offered = 0;
    uint64_t taken = 0;
    // What the streams of this rank have written, or will have waited for: release() reads it on another thread.
    std::atomic<uint32_t> copied = 0;
    std::atomic<uint32_t> ready = 0;
    std::atomic<uint32_t> arrived = 0;
    // Segments that were mapped, by their handles.
    std::map<std::string, uint64_t> mapped;
  };

  const int rank_;
  const int size_;
  int file_ = -1;
  uint64_t least_ = UINT64_MAX;
  uint8_t* page_ = nullptr;
  // The page's address on the GPU; 0 if it is not registered.
  uint64_t onDevice_ = 0;
  std::vector<Peer> peers_;
};

}  // namespace lockstep
