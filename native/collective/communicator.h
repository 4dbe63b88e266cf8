// One rank's end of a communicator of NCCL: its stream, how that is ordered with the context's, and how it ends where a rank does
// not come, whoever waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "native/collective/library.h"
#include "native/core/context.h"

namespace lockstep {

// Whether a communicator works, or why it has ended.
enum class CommState { kWorks, kTold, kLate, kBroken, kClosed };

struct CommPlace {
  nccl::UniqueId id;
  int rank = 0;
  int size = 0;
  // Not 0 once the job has failed; another thread writes it.
  int32_t* failed = nullptr;
  std::chrono::milliseconds timeout{0};
};

class Communicator {
 public:
  // Joins; waits for all ranks. Throws Failure BACKEND where they do not come in time, or the job fails.
  Communicator(Context& context, const CommPlace& place);
  ~Communicator();
  Communicator(const Communicator&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }

  // What was enqueued on the context's stream so far comes before what this communicator enqueues from now on.
  void begin();
  // What this communicator has enqueued so far comes before what is enqueued on the context's stream from now on.
  void end();

  // Adds to the next exchange.
  void send(const void* x, size_t bytes, int peer) { transfers_.push_back({const_cast<void*>(x), bytes, peer, true}); }
  void receive(void* out, size_t bytes, int peer) { transfers_.push_back({out, bytes, peer, false}); }
  // Enqueues what was added. Throws Failure BACKEND where the communicator has ended, as all that follow.
  void exchange();
  void allGather(const void* x, void* out, size_t bytes);
  void reduceScatter(const void* x, void* out, size_t count, nccl::DataType type);
  void broadcast(const void* x, void* out, size_t bytes, int root);

  // Ends the communicator if the job has failed, if NCCL has, or if what it enqueued waits too long. Called on another thread.
  void watch();
  CommState state(std::string* message);
  // Gives back all memory: in order where `inOrder`, else at once.
  void close(bool inOrder);

 private:
  using Clock = std::chrono::steady_clock;
  struct Transfer {
    void* data;
    size_t bytes;
    int peer;
    bool out;
  };
  // Work between a begin and an end.
  struct Span {
    cudaEvent_t begun;
    cudaEvent_t done;
    // When it was first seen to run.
    Clock::time_point since{};
  };

  // Enqueues by `body`, and waits until NCCL has taken it.
  template <typename Body>
  void enqueue(const char* what, Body body);
  // Waits while NCCL is busy on the host.
  void settle(const char* what, std::unique_lock<std::mutex>& lock);
  // Ends a communicator that is in a call of NCCL for too long.
  void cut();
  void check(const char* what, nccl::Result result);
  // On another thread than the caller's, which waits no longer than it should.
  void join();
  void finish(CommState state, const std::string& message);
  void requireOpen();
  bool told() const { return std::atomic_ref<int32_t>(*place_.failed).load() != 0; }
  cudaEvent_t takeEvent();
  void forgetDone();

  Context& context_;
  CommPlace place_;
  const nccl::Library& nccl_;
  cudaStream_t stream_ = nullptr;
  std::vector<Transfer> transfers_;

  // Set where a call of NCCL did not come back, and had to be ended by another thread.
  std::atomic<bool> cut_ = false;
  // Since when the watching thread has found the lock taken.
  Clock::time_point taken_{};

  // Guards what follows.
  std::mutex mutex_;
  nccl::Comm comm_ = nullptr;
  CommState state_ = CommState::kWorks;
  std::string message_;
  std::deque<Span> spans_;
  cudaEvent_t begun_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

// The communicators of a context, and the thread that watches them.
class Communicators : public Attachment {
 public:
  explicit Communicators(Context& context) : context_(context) {}
  ~Communicators() override;

  // `kept` is released with the context, on its thread.
  uint64_t open(const CommPlace& place, std::shared_ptr<void> kept);
  // Throws Failure ARGUMENT for a number that is of none.
  Communicator& at(uint64_t number);
  void close(uint64_t number, bool inOrder);

 private:
  void watch();

  Context& context_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::map<uint64_t, std::shared_ptr<Communicator>> open_;
  uint64_t made_ = 0;
  std::vector<std::shared_ptr<void>> kept_;
  std::thread thread_;
};

// The communicators of a context, created at the first call.
Communicators& communicatorsOf(Context& context);

}  // namespace lockstep
