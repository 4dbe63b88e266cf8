#include "native/collective/communicator.h"

#include <algorithm>
#include <tuple>

namespace lockstep {

namespace {

// The interval at which the watching thread checks all communicators.
constexpr std::chrono::milliseconds kLook{5};
// After a call, the host polls NCCL without a pause for kEager, and then every kNap.
constexpr std::chrono::microseconds kEager{500};
constexpr std::chrono::microseconds kNap{50};
// How long a call of NCCL may still take after the job has failed.
constexpr std::chrono::seconds kPatience{1};

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

namespace {

// The data that a thread that joins ranks shares with the thread that waits for it. The waiting thread may time out
// first.
struct Joining {
  const nccl::Library& nccl;
  CommPlace place;
  int device;
  cudaStream_t stream;
  // Device memory with kScratch bytes for each rank.
  uint8_t* scratch;
  // What this rank tells the others. Null if this rank does not copy.
  std::unique_ptr<Peers> peers;
  PeerHello hello;
  std::atomic<nccl::Comm> comm = nullptr;
  std::atomic<nccl::Result> result = nccl::kInProgress;
};

constexpr size_t kScratch = 128;
static_assert(sizeof(PeerHello) <= kScratch);

// Exchanges one byte with every rank. NCCL connects two ranks at their first exchange and blocks the host meanwhile;
// this call moves that cost to the opening of the communicator.
nccl::Result firstExchange(const Joining& joining, nccl::Comm comm) {
  const nccl::Library& nccl = joining.nccl;
  const auto& [place, scratch, stream] = std::tie(joining.place, joining.scratch, joining.stream);
  uint8_t* const out = scratch + kScratch * place.size;
  nccl.groupStart();
  for (int peer = 0; peer < place.size; ++peer) {
    if (peer == place.rank) continue;
    nccl.send(scratch, 1, nccl::kBytes, peer, comm, stream);
    nccl.recv(out + kScratch * peer, 1, nccl::kBytes, peer, comm, stream);
  }
  nccl::Result result = nccl.groupEnd();
  const auto then = [&](auto next) {
    while (result == nccl::kInProgress) nccl.commGetAsyncError(comm, &result);
    if (result == nccl::kSuccess) result = next();
  };
  then([&] { return nccl.allGather(scratch, out, 1, nccl::kBytes, comm, stream); });
  then([&] { return nccl.reduceScatter(scratch, out, 1, nccl::kF32, nccl::kSum, comm, stream); });
  then([&] { return nccl.broadcast(scratch, out, 1, nccl::kBytes, 0, comm, stream); });
  then([] { return nccl::kSuccess; });
  if (result == nccl::kSuccess && cudaStreamSynchronize(stream) != cudaSuccess) result = static_cast<nccl::Result>(1);
  return result;
}

// Gathers `bytes` bytes of every rank to `all`.
nccl::Result tellAll(const Joining& joining, nccl::Comm comm, const void* own, void* all, size_t bytes) {
  uint8_t* const out = joining.scratch + kScratch * joining.place.size;
  const auto move = [&](void* to, const void* from, size_t size, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, size, kind, joining.stream) == cudaSuccess &&
           cudaStreamSynchronize(joining.stream) == cudaSuccess;
  };
  constexpr auto kFailed = static_cast<nccl::Result>(1);
  if (!move(joining.scratch, own, bytes, cudaMemcpyHostToDevice)) return kFailed;
  nccl::Result result = joining.nccl.allGather(joining.scratch, out, bytes, nccl::kBytes, comm, joining.stream);
  while (result == nccl::kInProgress) joining.nccl.commGetAsyncError(comm, &result);
  if (result != nccl::kSuccess) return result;
  return move(all, out, bytes * joining.place.size, cudaMemcpyDeviceToHost) ? nccl::kSuccess : kFailed;
}

// Finds out whether all ranks can copy to each other. If not, `joining.peers` becomes null on all of them.
nccl::Result meetPeers(Joining& joining, nccl::Comm comm) {
  std::vector<PeerHello> hellos(joining.place.size);
  nccl::Result result = tellAll(joining, comm, &joining.hello, hellos.data(), sizeof(PeerHello));
  if (result != nccl::kSuccess) return result;
  const uint8_t can = joining.peers && joining.peers->meet(hellos);
  std::vector<uint8_t> all(joining.place.size);
  result = tellAll(joining, comm, &can, all.data(), 1);
  if (joining.peers) joining.peers->met();
  if (std::find(all.begin(), all.end(), 0) != all.end()) joining.peers.reset();
  return result;
}

void joinRanks(const std::shared_ptr<Joining>& joining) {
  ignore(cudaSetDevice(joining->device));
  nccl::Config config;
  nccl::Comm comm = nullptr;
  nccl::Result result =
      joining->nccl.commInitRankConfig(&comm, joining->place.size, joining->place.id, joining->place.rank, &config);
  while (result == nccl::kInProgress) joining->nccl.commGetAsyncError(comm, &result);
  if (result == nccl::kSuccess) {
    joining->comm = comm;
    if (joining->place.size > 1) result = firstExchange(*joining, comm);
    if (joining->place.size > 1 && result == nccl::kSuccess) result = meetPeers(*joining, comm);
  }
  joining->result = result;
}

}  // namespace

void Communicator::join() {
  const uint64_t scratch = context_.allocate(2 * kScratch * place_.size);
  context_.synchronize();
  const auto joining = std::shared_ptr<Joining>(
      new Joining{nccl_, place_, context_.device(), stream_, reinterpret_cast<uint8_t*>(scratch), nullptr, {}});
  if (const uint64_t least = leastCopied(); place_.size <= Peers::kMostRanks && least != UINT64_MAX) {
    joining->peers = std::make_unique<Peers>(place_.rank, place_.size);
    const auto segment = context_.exported().anySegment();
    joining->hello = joining->peers->hello(least, segment ? &*segment : nullptr);
  }
  std::thread thread([joining] { joinRanks(joining); });
  const Clock::time_point begun = Clock::now();
  const auto isLate = [&] { return Clock::now() - begun > place_.timeout; };
  while (joining->result == nccl::kInProgress && !told() && !isLate()) std::this_thread::sleep_for(kNap);
  std::unique_lock lock(mutex_);
  comm_ = joining->comm;
  if (joining->result == nccl::kInProgress) {
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

Communicator::~Communicator() { close(false); }

void Communicator::requireOpen() {
  if (cut_ && state_ == CommState::kWorks) {
    state_ = told() ? CommState::kTold : CommState::kLate;
    message_ = "a call of NCCL did not come back, and was ended";
    comm_ = nullptr;
  }
  if (state_ != CommState::kWorks) throw Failure{"BACKEND", message_};
}

std::string Communicator::lateText() const { return " waited " + std::to_string(place_.timeout.count()) + " ms"; }

void Communicator::finish(CommState state, const std::string& message) {
  if (state_ != CommState::kWorks) return;
  state_ = state;
  message_ = message;
  if (peers_) peers_->release();
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
      finish(CommState::kLate, std::string(what) + lateText());
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

void Communicator::exchange() {
  const std::vector<Transfer> transfers = std::exchange(transfers_, {});
  std::vector<PeerCopy> sent;
  std::vector<int> received;
  std::vector<Transfer> others;
  // all offers are made before one is waited for, so that no two ranks wait for each other
  for (const Transfer& each : transfers) {
    if (each.bytes == 0 || (each.out && isCopied(each.bytes))) continue;
    if (isCopied(each.bytes) && offer(each.peer, each.data, each.bytes)) {
      received.push_back(each.peer);
    } else {
      others.push_back(each);
    }
  }
  for (const Transfer& each : transfers) {
    if (!each.out || !isCopied(each.bytes)) continue;
    if (void* to = awaitOffer(each.peer, each.bytes)) {
      sent.push_back({each.peer, to, each.data, each.bytes});
    } else {
      others.push_back(each);
    }
  }
  copyPeers(std::move(sent), received, [&] { transfer(others); });
}

void Communicator::transfer(const std::vector<Transfer>& transfers) {
  if (transfers.empty()) return;
  enqueue("an exchange", [&] {
    nccl::Result first = nccl_.groupStart();
    const auto keep = [&](nccl::Result result) {
      if (first == nccl::kSuccess || first == nccl::kInProgress) first = result;
    };
    for (const Transfer& each : transfers) {
      keep(each.out ? nccl_.send(each.data, each.bytes, nccl::kBytes, each.peer, comm_, stream_)
                    : nccl_.recv(each.data, each.bytes, nccl::kBytes, each.peer, comm_, stream_));
    }
    keep(nccl_.groupEnd());
    return first;
  });
}

void Communicator::allGather(const void* x, void* out, size_t bytes) {
  uint8_t* const all = static_cast<uint8_t*>(out);
  std::vector<PeerCopy> sent;
  std::vector<int> received;
  // a gather of NCCL needs all ranks: they copy only if each of them can, which all of them find out
  bool isAll = isCopied(bytes);
  if (isCopied(bytes)) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      if (!offer(peer, all + static_cast<size_t>(peer) * bytes, bytes)) isAll = false;
      received.push_back(peer);
    }
    for (const int peer : received) {
      void* to = awaitOffer(peer, bytes);
      if (!to) isAll = false;
      sent.push_back({peer, to, x, bytes});
    }
  }
  if (!isAll) {
    return enqueue("ncclAllGather", [&] { return nccl_.allGather(x, out, bytes, nccl::kBytes, comm_, stream_); });
  }
  void* const own = all + static_cast<size_t>(rank()) * bytes;
  copyPeers(std::move(sent), received, [&] {
    if (own != x) context_.check("copy", cudaMemcpyAsync(own, x, bytes, cudaMemcpyDeviceToDevice, stream_));
  });
}

bool Communicator::offer(int peer, void* out, size_t bytes) {
  awaitRank("an exchange", [&] { return peers_->hasRoom(peer); });
  const uint64_t address = reinterpret_cast<uint64_t>(out);
  return peers_->offer(peer, context_.exported(), address, bytes);
}

void* Communicator::awaitOffer(int peer, size_t bytes) {
  // A rank that offers memory of another size has made another call, of which it also tells: the job fails then.
  awaitRank("an exchange", [&] { return peers_->isOffered(peer, bytes); });
  void* to = nullptr;
  context_.check("cudaIpcOpenMemHandle", peers_->take(peer, &to));
  return to;
}

template <typename IsDone>
void Communicator::awaitRank(const char* what, IsDone isDone) {
  const Clock::time_point begun = Clock::now();
  while (!isDone()) {
    const auto waited = Clock::now() - begun;
    {
      const std::lock_guard lock(mutex_);
      requireOpen();
      if (told()) finish(CommState::kTold, "the job has failed");
      if (waited > place_.timeout) finish(CommState::kLate, std::string(what) + lateText());
    }
    if (waited > kEager) std::this_thread::sleep_for(kNap);
  }
}

template <typename Others>
void Communicator::copyPeers(std::vector<PeerCopy> sent, const std::vector<int>& received, Others others) {
  // these calls block if the stream's queue is full, so the lock is not held
  for (const int peer : received) context_.check("cuStreamWriteValue32", peers_->writeReady(peer, stream_));
  // each rank begins with the rank behind it, so that no two copy to the same rank at once
  const auto distance = [this](const PeerCopy& copy) { return (copy.peer - rank() + size()) % size(); };
  std::stable_sort(sent.begin(), sent.end(),
                   [&](const PeerCopy& a, const PeerCopy& b) { return distance(a) < distance(b); });
  others();
  for (const auto& [peer, to, from, bytes] : sent) {
    context_.check("a copy to another GPU", peers_->copy(peer, to, from, bytes, stream_));
  }
  for (const int peer : received) context_.check("cuStreamWaitValue32", peers_->waitArrived(peer, stream_));
}

void Communicator::reduceScatter(const void* x, void* out, size_t count, nccl::DataType type) {
  enqueue("ncclReduceScatter", [&] { return nccl_.reduceScatter(x, out, count, type, nccl::kSum, comm_, stream_); });
}

void Communicator::broadcast(const void* x, void* out, size_t bytes, int root) {
  enqueue("ncclBroadcast", [&] { return nccl_.broadcast(x, out, bytes, nccl::kBytes, root, comm_, stream_); });
}

void Communicator::cut() {
  const Clock::time_point now = Clock::now();
  if (taken_ == Clock::time_point{}) taken_ = now;
  const auto waited = now - taken_;
  const bool isOver = (told() && waited > kPatience) || waited > place_.timeout;
  if (isOver && comm_ && !cut_.exchange(true)) nccl_.commAbort(comm_);
}

void Communicator::watch() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return cut();
  taken_ = {};
  if (state_ != CommState::kWorks && peers_) peers_->release();
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
  if (peers_) leavePeers();
  if (stream_) ignore(cudaStreamDestroy(std::exchange(stream_, nullptr)));
}

void Communicator::leavePeers() {
  const Clock::time_point begun = Clock::now();
  cudaError_t running = cudaStreamQuery(stream_);
  while (running == cudaErrorNotReady && Clock::now() - begun < kPatience) {
    peers_->release();
    std::this_thread::sleep_for(kNap);
    running = cudaStreamQuery(stream_);
  }
  ignore(running);
  // the stream may still copy to what is mapped, which then stays so until the process ends
  if (running == cudaErrorNotReady) static_cast<void>(peers_.release());
  peers_.reset();
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
