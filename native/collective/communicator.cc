#include "native/collective/communicator.h"

namespace lockstep {

namespace {

// The interval at which the watching thread checks all communicators.
constexpr std::chrono::milliseconds kLook{5};
constexpr std::chrono::microseconds kNap{50};
// The time that an NCCL call has to return after the job has failed.
constexpr std::chrono::seconds kPatience{1};
// The time that closing waits for the communicator's stream. It is longer than the wait for ranks that do not answer (peers.h).
constexpr std::chrono::seconds kDrained{15};

}  // namespace

Communicator::Communicator(Context& context, const CommPlace& place)
    : context_(context), place_(place), nccl_(nccl::library()) {
  context_.check("cudaStreamCreate", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  try {
    join();
  } catch (...) {
    close(false);
    throw;
  }
}

void Communicator::join() {
  const uint64_t least = place_.size > 1 && place_.size <= Peers::kMostRanks ? leastCopied() : UINT64_MAX;
  const uint64_t scratch = context_.allocate(2 * Joining::kScratch * place_.size);
  context_.synchronize();
  const auto joining = std::shared_ptr<Joining>(
      new Joining{nccl_, place_, context_.device(), stream_, reinterpret_cast<uint8_t*>(scratch)});
  if (least != UINT64_MAX) {
    joining->peers = std::make_unique<Peers>(place_.rank, place_.size);
    joining->hello = joining->peers->hello(least, context_.exported().anySegment());
  }
  std::thread thread([joining] { joinRanks(joining); });
  const Clock::time_point begun = Clock::now();
  const auto isLate = [&] { return Clock::now() - begun > place_.timeout; };
  while (joining->result == nccl::kInProgress && !told() && !isLate()) std::this_thread::sleep_for(kNap);
  std::unique_lock lock(mutex_);
  comm_ = joining->comm;
  if (joining->result == nccl::kInProgress) {
    joining->isEnded = true;
    // The missing ranks will never join. Without a communicator nothing can end the joining thread, so it is detached.
    if (comm_) {
      finish(told() ? CommState::kTold : CommState::kLate, "ranks did not join in time");
      thread.join();
      context_.free(scratch);
    } else {
      thread.detach();
    }
    throw Failure{"BACKEND", told() ? "the job has failed" : "ranks did not join in time"};
  }
  thread.join();
  context_.free(scratch);
  check("joining ranks", joining->result);
  peers_ = std::move(joining->peers);
  if (peers_) context_.exportFrom(peers_->least());
}

Communicator::~Communicator() {
  close(false);
  if (isAbandoned_) static_cast<void>(peers_.release());
}

void Communicator::requireOpen() {
  if (cut_ && state_ == CommState::kWorks) {
    state_ = told() ? CommState::kTold : CommState::kLate;
    message_ = "a call of NCCL did not come back, and was ended";
    comm_ = nullptr;
  }
  if (state_ != CommState::kWorks) throw Failure{"BACKEND", message_};
}

void Communicator::finish(CommState state, const std::string& message) {
  if (state_ != CommState::kWorks) return;
  state_ = state;
  message_ = message;
  // end the streams' waits first: aborting NCCL waits for its kernels, and these for earlier work on the stream
  if (comm_) endPeers();
  if (comm_ && !cut_) nccl_.commAbort(comm_);
  comm_ = nullptr;
}

void Communicator::check(const char* what, nccl::Result result) {
  if (result == nccl::kSuccess || result == nccl::kInProgress) return;
  if (cut_) requireOpen();
  const char* last = comm_ ? nccl_.getLastError(comm_) : nullptr;
  std::string message = std::string(what) + ": NCCL: " + nccl_.getErrorString(result);
  if (last && *last) message += std::string(": ") + last;
  finish(CommState::kBroken, message);
  throw Failure{"BACKEND", message};
}

cudaEvent_t Communicator::takeEvent() {
  forgetDone();
  cudaEvent_t event = nullptr;
  if (events_.empty()) {
    context_.check("cudaEventCreate", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  } else {
    event = events_.back();
    events_.pop_back();
  }
  return event;
}

void Communicator::forgetDone() {
  while (!spans_.empty() && cudaEventQuery(spans_.front().done) == cudaSuccess) {
    events_.push_back(spans_.front().begun);
    events_.push_back(spans_.front().done);
    spans_.pop_front();
  }
  cudaGetLastError();
}

void Communicator::begin() {
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    requireOpen();
    event = takeEvent();
    // a second begin() without an end() in between replaces the first
    if (begun_) events_.push_back(begun_);
    begun_ = event;
  }
  // these calls block if the stream's queue is full, so the lock is not held
  context_.check("cudaEventRecord", cudaEventRecord(event, context_.stream()));
  context_.check("cudaStreamWaitEvent", cudaStreamWaitEvent(stream_, event, 0));
}

void Communicator::end() {
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    event = takeEvent();
  }
  context_.check("cudaEventRecord", cudaEventRecord(event, stream_));
  context_.check("cudaStreamWaitEvent", cudaStreamWaitEvent(context_.stream(), event, 0));
  const std::lock_guard lock(mutex_);
  if (!begun_) {
    events_.push_back(event);
    return;
  }
  spans_.push_back({std::exchange(begun_, nullptr), event});
}

void Communicator::cut() {
  const Clock::time_point now = Clock::now();
  if (taken_ == Clock::time_point{}) taken_ = now;
  const auto waited = now - taken_;
  const bool isOver = (told() && waited > kPatience) || waited > place_.timeout;
  if (!isOver || !comm_ || cut_.exchange(true)) return;
  endPeers();
  nccl_.commAbort(comm_);
}

void Communicator::endPeers() {
  if (!peers_) return;
  context_.exported().retire();
  peers_->end();
}

void Communicator::watch() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return cut();
  taken_ = {};
  if (state_ != CommState::kWorks || !comm_) return;
  if (told()) return finish(CommState::kTold, "the job has failed");
  nccl::Result result = nccl::kSuccess;
  const nccl::Result asked = nccl_.commGetAsyncError(comm_, &result);
  const nccl::Result wrong = asked == nccl::kSuccess ? result : asked;
  if (wrong != nccl::kSuccess && wrong != nccl::kInProgress) {
    const char* last = nccl_.getLastError(comm_);
    return finish(CommState::kBroken, std::string("NCCL: ") + nccl_.getErrorString(wrong) +
                                          (last && *last ? std::string(": ") + last : ""));
  }
  forgetDone();
  if (spans_.empty()) return;
  Span& front = spans_.front();
  const bool runs = cudaEventQuery(front.begun) == cudaSuccess;
  cudaGetLastError();
  if (!runs) return;
  const Clock::time_point now = Clock::now();
  if (front.since == Clock::time_point{}) front.since = now;
  if (now - front.since > place_.timeout) {
    finish(CommState::kLate,
           "what NCCL runs on the GPU was not done after " + std::to_string(place_.timeout.count()) + " ms");
  }
}

CommState Communicator::state(std::string* message) {
  const std::lock_guard lock(mutex_);
  *message = message_;
  return state_;
}

void Communicator::close(bool inOrder) {
  const std::lock_guard lock(mutex_);
  // if `inOrder`, no rank has pending work, so the communicator can be destroyed instead of aborted
  if (inOrder && comm_ && state_ == CommState::kWorks) nccl_.commDestroy(std::exchange(comm_, nullptr));
  finish(CommState::kClosed, "the communicator was closed");
  for (const Span& span : spans_) {
    events_.push_back(span.begun);
    events_.push_back(span.done);
  }
  spans_.clear();
  if (begun_) events_.push_back(std::exchange(begun_, nullptr));
  for (cudaEvent_t event : events_) ignore(cudaEventDestroy(event));
  events_.clear();
  if (peers_ && stream_) leavePeers();
  if (stream_) ignore(cudaStreamDestroy(std::exchange(stream_, nullptr)));
}

void Communicator::leavePeers() {
  const Clock::time_point begun = Clock::now();
  cudaError_t running = cudaStreamQuery(stream_);
  while (running == cudaErrorNotReady && Clock::now() - begun < kDrained) {
    std::this_thread::sleep_for(kNap);
    running = cudaStreamQuery(stream_);
  }
  ignore(running);
  // the stream may still copy to mapped memory, and releasing its waits has to continue
  isAbandoned_ = running == cudaErrorNotReady;
  if (isAbandoned_) return;
  peers_->leave();
  context_.stopExport();
}

Communicators::~Communicators() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    // ends the waits of all communicators before closing one, because work of one may wait for work of another
    for (const auto& [_, each] : open_) each->endPeers();
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  open_.clear();
}

uint64_t Communicators::open(const CommPlace& place, std::shared_ptr<void> kept) {
  kept_.push_back(std::move(kept));
  auto made = std::make_shared<Communicator>(context_, place);
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { watch(); });
  open_.emplace(++made_, std::move(made));
  return made_;
}

Communicator& Communicators::at(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(number);
  if (found == open_.end()) throw Failure{"ARGUMENT", "there is no communicator " + std::to_string(number)};
  return *found->second;
}

void Communicators::close(uint64_t number, bool inOrder) {
  std::shared_ptr<Communicator> closed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(number);
    if (found == open_.end()) return;
    closed = found->second;
    open_.erase(found);
  }
  closed->close(inOrder);
}

void Communicators::watch() {
  ignore(cudaSetDevice(context_.device()));
  std::unique_lock lock(mutex_);
  while (!ending_) {
    std::vector<std::shared_ptr<Communicator>> watched;
    for (const auto& [_, each] : open_) watched.push_back(each);
    lock.unlock();
    for (const auto& each : watched) {
      if (each->told()) each->endPeers();
    }
    for (const auto& each : watched) each->watch();
    watched.clear();
    lock.lock();
    wake_.wait_for(lock, kLook, [this] { return ending_; });
  }
}

Communicators& communicatorsOf(Context& context) {
  std::shared_ptr<Attachment>& attached = context.communicators();
  if (!attached) attached = std::make_shared<Communicators>(context);
  return static_cast<Communicators&>(*attached);
}

}  // namespace lockstep
