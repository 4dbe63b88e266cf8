// The functions of a communicator that move data.
#include <algorithm>

#include "native/collective/communicator.h"

namespace lockstep {

namespace {

// The host polls NCCL and other ranks without pauses for kSpinTime, then once per kPollInterval.
constexpr std::chrono::microseconds kSpinTime{500};
constexpr std::chrono::microseconds kPollInterval{50};

}  // namespace

template <typename IsDone>
void Communicator::await(const char* what, IsDone isDone) {
  const Clock::time_point start = Clock::now();
  for (;;) {
    const auto waited = Clock::now() - start;
    {
      const std::lock_guard lock(mutex_);
      requireOpen();
      if (isDone()) return;
      if (hasJobFailed()) finish(CommState::kJobFailed, "the job has failed");
      if (waited > options_.timeout) {
        finish(CommState::kLate, std::string(what) + " waited " + std::to_string(options_.timeout.count()) + " ms");
      }
    }
    if (waited > kSpinTime) std::this_thread::sleep_for(kPollInterval);
  }
}

template <typename Body>
void Communicator::enqueue(const char* what, Body body) {
  {
    const std::lock_guard lock(mutex_);
    requireOpen();
    check(what, body());
  }
  await(what, [&] {
    nccl::Result result = nccl::kSuccess;
    check(what, nccl_.commGetAsyncError(comm_, &result));
    check(what, result);
    return result == nccl::kSuccess;
  });
}

template <typename Body>
auto Communicator::inStep(Body body) {
  try {
    return body();
  } catch (const Failure& failure) {
    const std::lock_guard lock(mutex_);
    finish(CommState::kBroken, failure.message);
    throw;
  }
}

void Communicator::exchange() {
  const std::vector<Transfer> transfers = std::exchange(transfers_, {});
  std::vector<PeerCopy> copies;
  std::vector<Arrival> arrivals;
  std::vector<Transfer> ncclTransfers;
  inStep([&] {
    // all offers precede the first wait, so that no two ranks wait for each other
    for (const Transfer& item : transfers) {
      if (item.isSend) continue;
      const auto number = isCopied(item.bytes) ? offer(item.peer, item.data, item.bytes) : std::nullopt;
      if (number) {
        arrivals.push_back({item.peer, *number});
      } else {
        ncclTransfers.push_back(item);
      }
    }
    for (const Transfer& item : transfers) {
      if (!item.isSend) continue;
      const auto target = isCopied(item.bytes) ? awaitOffer(item.peer, item.bytes) : Peers::TakenOffer{};
      if (target.to) {
        copies.push_back({target, item.data, item.bytes, {}});
      } else {
        ncclTransfers.push_back(item);
      }
    }
    transfer(ncclTransfers);
    copyPeers(std::move(copies), arrivals);
  });
}

void Communicator::transfer(const std::vector<Transfer>& transfers) {
  if (transfers.empty()) return;
  enqueue("an exchange", [&] {
    nccl::Result first = nccl_.groupStart();
    const auto keep = [&](nccl::Result result) {
      if (first == nccl::kSuccess || first == nccl::kInProgress) first = result;
    };
    for (const Transfer& item : transfers) {
      keep(item.isSend ? nccl_.send(item.data, item.bytes, nccl::kBytes, item.peer, comm_, stream_)
                       : nccl_.recv(item.data, item.bytes, nccl::kBytes, item.peer, comm_, stream_));
    }
    keep(nccl_.groupEnd());
    return first;
  });
}

void Communicator::allGather(const void* x, void* out, size_t bytes) {
  if (isCopied(bytes) && inStep([&] { return copyAll(x, static_cast<uint8_t*>(out), bytes); })) return;
  enqueue("ncclAllGather", [&] { return nccl_.allGather(x, out, bytes, nccl::kBytes, comm_, stream_); });
}

bool Communicator::copyAll(const void* x, uint8_t* out, size_t bytes) {
  const auto partOf = [&](int rank) { return out + static_cast<size_t>(rank) * bytes; };
  const int next = (rank() + 1) % size();
  const int previous = (rank() - 1 + size()) % size();
  // A copy within a GPU would occupy multiprocessors. Instead, the next rank, which receives this rank's part, copies it back.
  const bool isReturned = partOf(rank()) != x;
  std::vector<PeerCopy> copies;
  std::vector<Arrival> arrivals;
  std::optional<uint32_t> fromPrevious;
  const auto offerPart = [&](int peer, int part) {
    const auto number = offer(peer, partOf(part), bytes);
    if (number) arrivals.push_back({peer, *number});
    return number;
  };
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const auto number = offerPart(peer, peer);
    if (peer == previous) fromPrevious = number;
  }
  if (isReturned) offerPart(next, rank());
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Peers::TakenOffer target = awaitOffer(peer, bytes);
    if (target.to) copies.push_back({target, x, bytes, {}});
  }
  const auto peerCount = static_cast<size_t>(size() - 1);
  const bool allCanCopy = copies.size() == peerCount && arrivals.size() >= peerCount;
  if (isReturned) {
    const Peers::TakenOffer returnTarget = awaitOffer(previous, bytes);
    if (allCanCopy) copies.push_back({returnTarget, partOf(previous), bytes, Arrival{previous, *fromPrevious}});
  }
  // NCCL's gather needs all ranks. So first all ranks learn whether every rank can be copied to.
  if (allCanCopy) copyPeers(std::move(copies), arrivals);
  return allCanCopy;
}

std::optional<uint32_t> Communicator::offer(int peer, void* out, size_t bytes) {
  await("an exchange", [&] { return peers_->hasRoom(peer); });
  std::optional<uint32_t> number;
  const uint64_t address = reinterpret_cast<uint64_t>(out);
  context_.check("cuStreamWriteValue32", peers_->offer(peer, context_.exported(), address, bytes, stream_, &number));
  return number;
}

Peers::TakenOffer Communicator::awaitOffer(int peer, size_t bytes) {
  // An offer of another size means that the rank has made another call. That rank also sends a note about its call, so the job
  // fails.
  await("an exchange", [&] { return peers_->isOffered(peer, bytes); });
  Peers::TakenOffer target{};
  context_.check("cudaIpcOpenMemHandle", peers_->take(peer, &target));
  return target;
}

void Communicator::copyPeers(std::vector<PeerCopy> copies, const std::vector<Arrival>& arrivals) {
  const auto waitArrived = [this](const Arrival& arrival) {
    context_.check("cuStreamWaitValue32", peers_->waitArrived(arrival.peer, arrival.number, stream_));
  };
  // each rank copies to the next rank first, so that no two ranks start with the same receiver
  const auto distance = [this](const PeerCopy& copy) { return (copy.target.peer - rank() + size()) % size(); };
  std::stable_sort(copies.begin(), copies.end(),
                   [&](const PeerCopy& a, const PeerCopy& b) { return distance(a) < distance(b); });
  // these calls block if the stream's queue is full, so the lock is not held
  for (const auto& [target, from, bytes, prerequisite] : copies) {
    if (prerequisite) waitArrived(*prerequisite);
    context_.check("a copy to another GPU", peers_->copy(target, from, bytes, stream_));
  }
  for (const Arrival& arrival : arrivals) waitArrived(arrival);
}

void Communicator::reduceScatter(const void* x, void* out, size_t count, nccl::DataType type) {
  enqueue("ncclReduceScatter", [&] { return nccl_.reduceScatter(x, out, count, type, nccl::kSum, comm_, stream_); });
}

void Communicator::broadcast(const void* x, void* out, size_t bytes, int root) {
  enqueue("ncclBroadcast", [&] { return nccl_.broadcast(x, out, bytes, nccl::kBytes, root, comm_, stream_); });
}

}  // namespace lockstep
