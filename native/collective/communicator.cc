#include "native/collective/communicator.h"

namespace lockstep {

namespace {

// How often another thread looks after the communicators.
constexpr std::chrono::milliseconds kLook{5};
// NCCL is asked at once for so long whether it has taken what it was given, and from then on every kNap.
constexpr std::chrono::microseconds kEager{500};
constexpr std::chrono::microseconds kNap{50};
// How long ranks that leave in order wait for each other.
constexpr std::chrono::seconds kFarewell{10};

}  // namespace

Communicator::Communicator(Context& context, const CommPlace& place)
    : context_(context), place_(place), nccl_(nccl::library()) {
  context_.check("cudaStreamCreate", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  try {
    nccl::Config config;
    std::unique_lock lock(mutex_);
    const nccl::Result result = nccl_.commInitRankConfig(&comm_, place_.size, place_.id, place_.rank, &config);
    check("ncclCommInitRankConfig", result);
    settle("ncclCommInitRankConfig", lock);
  } catch (...) {
    close(false);
    throw;
  }
}

Communicator::~Communicator() { close(false); }

void Communicator::requireOpen() const {
  if (state_ != CommState::kWorks) throw Failure{"BACKEND", message_};
}

void Communicator::finish(CommState state, const std::string& message) {
  if (state_ != CommState::kWorks) return;
  state_ = state;
  message_ = message;
  if (comm_) nccl_.commAbort(std::exchange(comm_, nullptr));
}

void Communicator::check(const char* what, nccl::Result result) {
  if (result == nccl::kSuccess || result == nccl::kInProgress) return;
  const char* last = comm_ ? nccl_.getLastError(comm_) : nullptr;
  std::string message = std::string(what) + ": NCCL: " + nccl_.getErrorString(result);
  if (last && *last) message += std::string(": ") + last;
  finish(CommState::kBroken, message);
  throw Failure{"BACKEND", message};
}

void Communicator::settle(const char* what, std::unique_lock<std::mutex>& lock) {
  const Clock::time_point begun = Clock::now();
  for (;;) {
    requireOpen();
    nccl::Result result = nccl::kSuccess;
    check(what, nccl_.commGetAsyncError(comm_, &result));
    check(what, result);
    if (result == nccl::kSuccess) return;
    const auto waited = Clock::now() - begun;
    if (told()) finish(CommState::kTold, "the job has failed");
    if (waited > place_.timeout) {
      finish(CommState::kLate, std::string(what) + " waited " + std::to_string(place_.timeout.count()) + " ms");
    }
    lock.unlock();
    if (waited > kEager) std::this_thread::sleep_for(kNap);
    lock.lock();
  }
}

template <typename Body>
void Communicator::enqueue(const char* what, Body body) {
  std::unique_lock lock(mutex_);
  requireOpen();
  check(what, body());
  settle(what, lock);
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
    // of two begins without an end between them, the later one holds
    if (begun_) events_.push_back(begun_);
    begun_ = event;
  }
  // a queue that is full makes these wait, so the lock is not held
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

void Communicator::exchange() {
  const std::vector<Transfer> transfers = std::exchange(transfers_, {});
  if (transfers.empty()) return;
  enqueue("an exchange", [&] {
    nccl::Result first = nccl_.groupStart();
    const auto keep = [&](nccl::Result result) {
      if (first == nccl::kSuccess || first == nccl::kInProgress) first = result;
    };
    for (const Transfer& each : transfers) {
      if (each.bytes == 0) continue;
      keep(each.out ? nccl_.send(each.data, each.bytes, nccl::kBytes, each.peer, comm_, stream_)
                    : nccl_.recv(each.data, each.bytes, nccl::kBytes, each.peer, comm_, stream_));
    }
    keep(nccl_.groupEnd());
    return first;
  });
}

void Communicator::allGather(const void* x, void* out, size_t bytes) {
  enqueue("ncclAllGather", [&] { return nccl_.allGather(x, out, bytes, nccl::kBytes, comm_, stream_); });
}

void Communicator::reduceScatter(const void* x, void* out, size_t count, nccl::DataType type) {
  enqueue("ncclReduceScatter", [&] { return nccl_.reduceScatter(x, out, count, type, nccl::kSum, comm_, stream_); });
}

void Communicator::broadcast(const void* x, void* out, size_t bytes, int root) {
  enqueue("ncclBroadcast", [&] { return nccl_.broadcast(x, out, bytes, nccl::kBytes, root, comm_, stream_); });
}

void Communicator::watch() {
  const std::lock_guard lock(mutex_);
  if (state_ != CommState::kWorks || !comm_) return;
  if (told()) return finish(CommState::kTold, "the job has failed");
  nccl::Result result = nccl::kSuccess;
  const nccl::Result asked = nccl_.commGetAsyncError(comm_, &result);
  const nccl::Result wrong = asked == nccl::kSuccess ? result : asked;
  if (wrong != nccl::kSuccess && wrong != nccl::kInProgress) {
    const char* last = nccl_.getLastError(comm_);
    return finish(CommState::kBroken,
                  std::string("NCCL: ") + nccl_.getErrorString(wrong) + (last && *last ? std::string(": ") + last : ""));
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
    finish(CommState::kLate, "what NCCL runs on the GPU was not done after " + std::to_string(place_.timeout.count()) +
                                 " ms");
  }
}

CommState Communicator::state(std::string* message) {
  const std::lock_guard lock(mutex_);
  *message = message_;
  return state_;
}

void Communicator::close(bool inOrder) {
  const std::lock_guard lock(mutex_);
  if (inOrder && comm_ && state_ == CommState::kWorks) {
    nccl::Result result = nccl_.commFinalize(comm_);
    const Clock::time_point begun = Clock::now();
    while (result == nccl::kInProgress && Clock::now() - begun < kFarewell && !told()) {
      std::this_thread::sleep_for(kNap);
      if (nccl_.commGetAsyncError(comm_, &result) != nccl::kSuccess) break;
    }
    if (result == nccl::kSuccess) nccl_.commDestroy(std::exchange(comm_, nullptr));
  }
  finish(CommState::kClosed, "the communicator was closed");
  for (const Span& span : spans_) {
    events_.push_back(span.begun);
    events_.push_back(span.done);
  }
  spans_.clear();
  if (begun_) events_.push_back(std::exchange(begun_, nullptr));
  for (cudaEvent_t event : events_) ignore(cudaEventDestroy(event));
  events_.clear();
  if (stream_) ignore(cudaStreamDestroy(std::exchange(stream_, nullptr)));
}

Communicators::~Communicators() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
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
