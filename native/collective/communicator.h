// This rank's part of an NCCL communicator: its stream, the ordering between that stream and the context's stream, and
// timeouts. If another rank fails or is late, the communicator is ended, so that neither host nor GPU waits forever.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "native/collective/join.h"
#include "native/collective/library.h"
#include "native/collective/peers.h"
#include "native/core/context.h"

namespace lockstep {

// kWorks: the communicator is usable. All others say why it has ended. kJobFailed: the job has failed. kLate: a timeout.
// kBroken: an error of NCCL. kClosed: close() was called.
enum class CommState { kWorks, kJobFailed, kLate, kBroken, kClosed };

class Communicator {
 public:
  // Joins the other ranks and waits for all of them. Throws Failure BACKEND if they do not join in time or the job
  // fails.
  Communicator(Context& context, const CommOptions& options);
  ~Communicator();
  Communicator(const Communicator&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }

  // Makes the work that this communicator enqueues from now on wait for the work enqueued on the context's stream so
  // far.
  void begin();
  // Makes the work enqueued on the context's stream from now on wait for the work that this communicator has enqueued
  // so far.
  void end();

  // Adds a transfer to the next exchange(). Transfers of 0 bytes are ignored.
  void send(const void* x, size_t bytes, int peer) { add({const_cast<void*>(x), bytes, peer, true}); }
  void receive(void* out, size_t bytes, int peer) { add({out, bytes, peer, false}); }
  // Enqueues the added transfers. exchange() and the three functions below throw Failure BACKEND if the communicator has ended.
  // On the side stream, GPUs that can access each other's memory copy to memory that the receiver exports, and NCCL moves all
  // other data. Either all ranks are on the side stream, or none.
  void exchange();
  // All ranks pass `x` as their part of `out`, or none does.
  void allGather(const void* x, void* out, size_t bytes);
  void reduceScatter(const void* x, void* out, size_t count, nccl::DataType type);
  void broadcast(const void* x, void* out, size_t bytes, int root);

  // Ends the communicator if the job has failed, if NCCL reports an error, or if enqueued work exceeds the timeout.
  // Called by the watching thread.
  void watch();
  CommState state(std::string* message);
  // Whether another thread has reported that the job failed.
  bool hasJobFailed() const { return std::atomic_ref<int32_t>(*options_.failed).load() != 0; }
  // Ends the waits of this rank's streams, and the export of memory that other ranks may write to. May be called on any thread.
  void endPeers();
  // Releases all resources. If `inOrder`, the communicator is destroyed after its work; otherwise it is aborted.
  void close(bool inOrder);

 private:
  using Clock = std::chrono::steady_clock;
  struct Transfer {
    void* data;
    size_t bytes;
    int peer;
    bool isSend;
  };
  // Work that was enqueued between a begin() and an end(), with the events before and after it.
  struct Span {
    cudaEvent_t start;
    cudaEvent_t end;
    // The time at which `watch` first saw the work running.
    Clock::time_point since{};
  };

  // A copy from another rank to this one.
  struct Arrival {
    int peer;
    uint32_t number;
  };
  // A copy to memory that another rank has offered. The source is local data, or data that another copy has delivered.
  struct PeerCopy {
    Peers::TakenOffer target;
    const void* from;
    size_t bytes;
    std::optional<Arrival> prerequisite;
  };

  void add(const Transfer& transfer) {
    if (transfer.bytes > 0) transfers_.push_back(transfer);
  }
  // Whether an exchange of `bytes` bytes between two ranks is a copy, if the receiver's memory is exported.
  bool isCopied(size_t bytes) const { return peers_ && context_.isAside() && bytes >= peers_->minBytes(); }
  // Offers memory to a rank. Returns the number of the copy; nothing if the rank cannot copy to it.
  std::optional<uint32_t> offer(int peer, void* out, size_t bytes);
  // Waits for the peer's offer for a send.
  Peers::TakenOffer awaitOffer(int peer, size_t bytes);
  // Enqueues copies to other ranks, and waits for their copies to this one.
  void copyPeers(std::vector<PeerCopy> copies, const std::vector<Arrival>& arrivals);
  // Gathers by copies, if all ranks can. Returns whether they can.
  bool copyAll(const void* x, uint8_t* out, size_t bytes);
  // Enqueues transfers by NCCL.
  void transfer(const std::vector<Transfer>& transfers);
  // Calls `body`. If `body` throws, ends the communicator, because the ranks are then at different points.
  template <typename Body>
  auto inStep(Body body);
  // Calls `body`, which enqueues work, and waits until NCCL has accepted the work.
  template <typename Body>
  void enqueue(const char* what, Body body);
  // Waits until `isDone()`, which depends on other ranks. It is called with `mutex_` held.
  template <typename IsDone>
  void await(const char* what, IsDone isDone);
  // Aborts a communicator whose current NCCL call takes too long.
  void abortLateCall();
  void check(const char* what, nccl::Result result);
  // Joins the ranks on a separate thread, so that this thread can time out.
  void join();
  void finish(CommState state, const std::string& message);
  void requireOpen();
  // Unmaps the memory of other ranks. No enqueued work may use it any more.
  void leavePeers();
  cudaEvent_t takeEvent();
  void forgetDone();

  Context& context_;
  CommOptions options_;
  const nccl::Library& nccl_;
  cudaStream_t stream_ = nullptr;
  std::vector<Transfer> transfers_;
  // Null if the ranks do not copy. Kept until the destructor, since the watching thread uses it.
  std::unique_ptr<Peers> peers_;
  // Set if enqueued work may still use `peers_`, which is then kept until the process ends.
  bool isAbandoned_ = false;

  // Set if another thread aborted the communicator because a call of NCCL did not return.
  std::atomic<bool> isAborted_ = false;
  // The time at which the watching thread first failed to take `mutex_`.
  Clock::time_point lockedSince_{};

  // Guards all members below.
  std::mutex mutex_;
  nccl::Comm comm_ = nullptr;
  CommState state_ = CommState::kWorks;
  std::string message_;
  std::deque<Span> spans_;
  cudaEvent_t spanStart_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

// The communicators of a context, and the thread that watches them.
class Communicators : public Attachment {
 public:
  explicit Communicators(Context& context) : context_(context) {}
  ~Communicators() override;

  // Keeps `resource` alive until the context closes, and releases it on the context's thread.
  uint64_t open(const CommOptions& options, std::shared_ptr<void> resource);
  // Throws Failure ARGUMENT if no communicator has this number.
  Communicator& at(uint64_t number);
  void close(uint64_t number, bool inOrder);

 private:
  void watch();

  Context& context_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool isClosing_ = false;
  std::map<uint64_t, std::shared_ptr<Communicator>> open_;
  uint64_t lastNumber_ = 0;
  std::vector<std::shared_ptr<void>> resources_;
  std::thread thread_;
};

// The communicators of a context, created at the first call.
Communicators& communicatorsOf(Context& context);

}  // namespace lockstep
