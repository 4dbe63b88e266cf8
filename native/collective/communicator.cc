#include "native/collective/communicator.h"

namespace lockstep {

namespace {

// The interval at which the watching thread checks all communicators.
constexpr std::chrono::milliseconds kWatchInterval{5};
constexpr std::chrono::microseconds kPollInterval{50};
// The time that an NCCL call has to return after the job has failed.
constexpr std::chrono::seconds kCallTimeout{1};
// The time that closing waits for the communicator's stream. It is longer than the wait for ranks that do not answer (peers.h).
constexpr std::chrono::seconds kDrainTimeout{15};

}  // namespace

Communicator::Communicator(Context& context, const CommOptions& options)
    : context_(context), options_(options), nccl_(nccl::library()) {
  context_.check("cudaStreamCreate", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  try {
    join();
  } catch (...) {
    close(false);
    throw;
  }
}

void Communicator::join() {
  const uint64_t minBytes = options_.size > 1 && options_.size <= Peers::kMaxRanks ? minCopyBytes() : UINT64_MAX;
  const uint64_t scratch = context_.allocate(2 * Joining::kScratch * options_.size);
  context_.synchronize();
  const auto joining = std::shared_ptr<Joining>(
      new Joining{nccl_, options_, context_.device(), stream_, reinterpret_cast<uint8_t*>(scratch)});
  if (minBytes != UINT64_MAX) {
    joining->peers = std::make_unique<Peers>(options_.rank, options_.size);
    joining->hello = joining->peers->hello(minBytes, context_.exported().anySegment());
  }
  std::thread thread([joining] { joinRanks(joining); });
  const Clock::time_point start = Clock::now();
  const auto isLate = [&] { return Clock::now() - start > options_.timeout; };
  while (joining->result == nccl::kInProgress && !hasJobFailed() && !isLate())
    std::this_thread::sleep_for(kPollInterval);
  std::unique_lock lock(mutex_);
  comm_ = joining->comm;
  if (joining->result == nccl::kInProgress) {
    joining->isEnded = true;
    // The missing ranks will never join. Without a communicator nothing can end the joining thread, so it is detached.
    if (comm_) {
      finish(hasJobFailed() ? CommState::kJobFailed : CommState::kLate, "ranks did not join in time");
      thread.join();
      context_.free(scratch);
    } else {
      thread.detach();
    }
    throw Failure{"BACKEND", hasJobFailed() ? "the job has failed" : "ranks did not join in time"};
  }
  thread.join();
  context_.free(scratch);
  check("joining ranks", joining->result);
  peers_ = std::move(joining->peers);
  if (peers_) context_.exportFrom(peers_->minBytes());
}

Communicator::~Communicator() {
  close(false);
  if (isAbandoned_) static_cast<void>(peers_.release());
}

void Communicator::requireOpen() {
  if (isAborted_ && state_ == CommState::kWorks) {
    state_ = hasJobFailed() ? CommState::kJobFailed : CommState::kLate;
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
  if (comm_ && !isAborted_) nccl_.commAbort(comm_);
  comm_ = nullptr;
}

void Communicator::check(const char* what, nccl::Result result) {
  if (result == nccl::kSuccess || result == nccl::kInProgress) return;
  if (isAborted_) requireOpen();
  const char* lastError = comm_ ? nccl_.getLastError(comm_) : nullptr;
  std::string message = std::string(what) + ": NCCL: " + nccl_.getErrorString(result);
  if (lastError && *lastError) message += std::string(": ") + lastError;
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
  while (!spans_.empty() && cudaEventQuery(spans_.front().end) == cudaSuccess) {
    events_.push_back(spans_.front().start);
    events_.push_back(spans_.front().end);
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
    if (spanStart_) events_.push_back(spanStart_);
    spanStart_ = event;
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
  if (!spanStart_) {
    events_.push_back(event);
    return;
  }
  spans_.push_back({std::exchange(spanStart_, nullptr), event});
}

void Communicator::abortLateCall() {
  const Clock::time_point now = Clock::now();
  if (lockedSince_ == Clock::time_point{}) lockedSince_ = now;
  const auto waited = now - lockedSince_;
  const bool isOver = (hasJobFailed() && waited > kCallTimeout) || waited > options_.timeout;
  if (!isOver || !comm_ || isAborted_.exchange(true)) return;
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
  if (!lock.owns_lock()) return abortLateCall();
  lockedSince_ = {};
  if (state_ != CommState::kWorks || !comm_) return;
  if (hasJobFailed()) return finish(CommState::kJobFailed, "the job has failed");
  nccl::Result result = nccl::kSuccess;
  const nccl::Result status = nccl_.commGetAsyncError(comm_, &result);
  const nccl::Result error = status == nccl::kSuccess ? result : status;
  if (error != nccl::kSuccess && error != nccl::kInProgress) {
    const char* lastError = nccl_.getLastError(comm_);
    return finish(CommState::kBroken, std::string("NCCL: ") + nccl_.getErrorString(error) +
                                          (lastError && *lastError ? std::string(": ") + lastError : ""));
  }
  forgetDone();
  if (spans_.empty()) return;
  Span& span = spans_.front();
  const bool runs = cudaEventQuery(span.start) == cudaSuccess;
  cudaGetLastError();
  if (!runs) return;
  const Clock::time_point now = Clock::now();
  if (span.since == Clock::time_point{}) span.since = now;
  if (now - span.since > options_.timeout) {
    finish(CommState::kLate,
           "what NCCL runs on the GPU was not done after " + std::to_string(options_.timeout.count()) + " ms");
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
    events_.push_back(span.start);
    events_.push_back(span.end);
  }
  spans_.clear();
  if (spanStart_) events_.push_back(std::exchange(spanStart_, nullptr));
  for (cudaEvent_t event : events_) ignore(cudaEventDestroy(event));
  events_.clear();
  if (peers_ && stream_) leavePeers();
  if (stream_) ignore(cudaStreamDestroy(std::exchange(stream_, nullptr)));
}

void Communicator::leavePeers() {
  const Clock::time_point start = Clock::now();
  cudaError_t running = cudaStreamQuery(stream_);
  while (running == cudaErrorNotReady && Clock::now() - start < kDrainTimeout) {
    std::this_thread::sleep_for(kPollInterval);
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
    isClosing_ = true;
    // ends the waits of all communicators before closing one, because work of one may wait for work of another
    for (const auto& [_, communicator] : open_) communicator->endPeers();
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  open_.clear();
}

uint64_t Communicators::open(const CommOptions& options, std::shared_ptr<void> resource) {
  resources_.push_back(std::move(resource));
  auto communicator = std::make_shared<Communicator>(context_, options);
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { watch(); });
  open_.emplace(++lastNumber_, std::move(communicator));
  return lastNumber_;
}

Communicator& Communicators::at(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto entry = open_.find(number);
  if (entry == open_.end()) throw Failure{"ARGUMENT", "there is no communicator " + std::to_string(number)};
  return *entry->second;
}

void Communicators::close(uint64_t number, bool inOrder) {
  std::shared_ptr<Communicator> communicator;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = open_.find(number);
    if (entry == open_.end()) return;
    communicator = entry->second;
    open_.erase(entry);
  }
  communicator->close(inOrder);
}

void Communicators::watch() {
  ignore(cudaSetDevice(context_.device()));
  std::unique_lock lock(mutex_);
  while (!isClosing_) {
    std::vector<std::shared_ptr<Communicator>> communicators;
    for (const auto& [_, communicator] : open_) communicators.push_back(communicator);
    lock.unlock();
    for (const auto& communicator : communicators) {
      if (communicator->hasJobFailed()) communicator->endPeers();
    }
    for (const auto& communicator : communicators) communicator->watch();
    communicators.clear();
    lock.lock();
    wake_.wait_for(lock, kWatchInterval, [this] { return isClosing_; });
  }
}

Communicators& communicatorsOf(Context& context) {
  std::shared_ptr<Attachment>& attachment = context.communicators();
  if (!attachment) attachment = std::make_shared<Communicators>(context);
  return static_cast<Communicators&>(*attachment);
}

}  // namespace lockstep
