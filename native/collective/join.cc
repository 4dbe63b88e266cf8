#include "native/collective/join.h"

#include <algorithm>
#include <vector>

#include "native/core/failure.h"

namespace lockstep {

namespace {

static_assert(sizeof(PeerHello) <= Joining::kScratch);

constexpr auto kFailed = static_cast<nccl::Result>(1);

// Waits until NCCL has accepted the call.
nccl::Result settled(const Joining& joining, nccl::Comm comm, nccl::Result result) {
  while (result == nccl::kInProgress) {
    if (joining.isEnded || joining.nccl.commGetAsyncError(comm, &result) != nccl::kSuccess) return kFailed;
  }
  return result;
}

nccl::Result synchronized(const Joining& joining, nccl::Result result) {
  if (result != nccl::kSuccess) return result;
  if (cudaStreamSynchronize(joining.stream) == cudaSuccess && !joining.isEnded) return result;
  return kFailed;
}

// Exchanges one byte with every rank. NCCL connects two ranks at their first exchange and blocks the host meanwhile;
// this call moves that cost to the opening of the communicator.
nccl::Result firstExchange(const Joining& joining, nccl::Comm comm) {
  const nccl::Library& nccl = joining.nccl;
  const cudaStream_t stream = joining.stream;
  uint8_t* const x = joining.scratch;
  uint8_t* const out = x + Joining::kScratch * joining.place.size;
  nccl.groupStart();
  for (int peer = 0; peer < joining.place.size; ++peer) {
    if (peer == joining.place.rank) continue;
    nccl.send(x, 1, nccl::kBytes, peer, comm, stream);
    nccl.recv(out + Joining::kScratch * peer, 1, nccl::kBytes, peer, comm, stream);
  }
  nccl::Result result = nccl.groupEnd();
  const auto then = [&](auto next) {
    result = settled(joining, comm, result);
    if (result == nccl::kSuccess) result = next();
  };
  then([&] { return nccl.allGather(x, out, 1, nccl::kBytes, comm, stream); });
  then([&] { return nccl.reduceScatter(x, out, 1, nccl::kF32, nccl::kSum, comm, stream); });
  then([&] { return nccl.broadcast(x, out, 1, nccl::kBytes, 0, comm, stream); });
  return synchronized(joining, settled(joining, comm, result));
}

// Gathers `bytes` bytes of every rank to `all`.
nccl::Result tellAll(const Joining& joining, nccl::Comm comm, const void* own, void* all, size_t bytes) {
  uint8_t* const out = joining.scratch + Joining::kScratch * joining.place.size;
  const cudaStream_t stream = joining.stream;
  if (cudaMemcpyAsync(joining.scratch, own, bytes, cudaMemcpyHostToDevice, stream) != cudaSuccess) return kFailed;
  nccl::Result result = joining.nccl.allGather(joining.scratch, out, bytes, nccl::kBytes, comm, stream);
  result = settled(joining, comm, result);
  if (result != nccl::kSuccess) return result;
  const cudaError_t error = cudaMemcpyAsync(all, out, bytes * joining.place.size, cudaMemcpyDeviceToHost, stream);
  return synchronized(joining, error == cudaSuccess ? nccl::kSuccess : kFailed);
}

nccl::Result meetPeers(Joining& joining, nccl::Comm comm) {
  std::vector<PeerHello> hellos(static_cast<size_t>(joining.place.size));
  nccl::Result result = tellAll(joining, comm, &joining.hello, hellos.data(), sizeof(PeerHello));
  if (result != nccl::kSuccess) return result;
  const uint8_t can = joining.peers && joining.peers->meet(hellos, joining.stream);
  std::vector<uint8_t> all(static_cast<size_t>(joining.place.size));
  result = tellAll(joining, comm, &can, all.data(), 1);
  const bool canAll = result == nccl::kSuccess && std::find(all.begin(), all.end(), 0) == all.end();
  if (joining.peers) joining.peers->met(canAll);
  if (!canAll) joining.peers.reset();
  return result;
}

}  // namespace

void joinRanks(const std::shared_ptr<Joining>& joining) {
  ignore(cudaSetDevice(joining->device));
  nccl::Config config;
  nccl::Comm comm = nullptr;
  nccl::Result result =
      joining->nccl.commInitRankConfig(&comm, joining->place.size, joining->place.id, joining->place.rank, &config);
  result = settled(*joining, comm, result);
  if (result == nccl::kSuccess) {
    joining->comm = comm;
    if (joining->place.size > 1) result = firstExchange(*joining, comm);
    if (joining->place.size > 1 && result == nccl::kSuccess) result = meetPeers(*joining, comm);
  }
  joining->result = result;
}

}  // namespace lockstep
