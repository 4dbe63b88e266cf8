#include "native/collective/join.h"

#include <algorithm>
#include <vector>

#include "native/core/failure.h"

namespace lockstep {

namespace {

static_assert(sizeof(PeerHello) <= Joining::kScratch);

constexpr auto kFailed = static_cast<nccl::Result>(1);

// Waits until NCCL has accepted the call.
nccl::Result awaitAccepted(const Joining& joining, nccl::Comm comm, nccl::Result result) {
  while (result == nccl::kInProgress) {
    if (joining.isEnded || joining.nccl.commGetAsyncError(comm, &result) != nccl::kSuccess) return kFailed;
  }
  return result;
}

nccl::Result awaitStream(const Joining& joining, nccl::Result result) {
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
  uint8_t* const out = x + Joining::kScratch * joining.options.size;
  nccl.groupStart();
  for (int peer = 0; peer < joining.options.size; ++peer) {
    if (peer == joining.options.rank) continue;
    nccl.send(x, 1, nccl::kBytes, peer, comm, stream);
    nccl.recv(out + Joining::kScratch * peer, 1, nccl::kBytes, peer, comm, stream);
  }
  nccl::Result result = nccl.groupEnd();
  const auto then = [&](auto next) {
    result = awaitAccepted(joining, comm, result);
    if (result == nccl::kSuccess) result = next();
  };
  then([&] { return nccl.allGather(x, out, 1, nccl::kBytes, comm, stream); });
  then([&] { return nccl.reduceScatter(x, out, 1, nccl::kF32, nccl::kSum, comm, stream); });
  then([&] { return nccl.broadcast(x, out, 1, nccl::kBytes, 0, comm, stream); });
  return awaitStream(joining, awaitAccepted(joining, comm, result));
}

// Gathers `bytes` bytes of every rank to `values`.
nccl::Result gatherAll(const Joining& joining, nccl::Comm comm, const void* value, void* values, size_t bytes) {
  uint8_t* const out = joining.scratch + Joining::kScratch * joining.options.size;
  const cudaStream_t stream = joining.stream;
  if (cudaMemcpyAsync(joining.scratch, value, bytes, cudaMemcpyHostToDevice, stream) != cudaSuccess) return kFailed;
  nccl::Result result = joining.nccl.allGather(joining.scratch, out, bytes, nccl::kBytes, comm, stream);
  result = awaitAccepted(joining, comm, result);
  if (result != nccl::kSuccess) return result;
  const cudaError_t error = cudaMemcpyAsync(values, out, bytes * joining.options.size, cudaMemcpyDeviceToHost, stream);
  return awaitStream(joining, error == cudaSuccess ? nccl::kSuccess : kFailed);
}

nccl::Result meetPeers(Joining& joining, nccl::Comm comm) {
  std::vector<PeerHello> hellos(static_cast<size_t>(joining.options.size));
  nccl::Result result = gatherAll(joining, comm, &joining.hello, hellos.data(), sizeof(PeerHello));
  if (result != nccl::kSuccess) return result;
  const uint8_t canCopy = joining.peers && joining.peers->meet(hellos, joining.stream);
  std::vector<uint8_t> answers(static_cast<size_t>(joining.options.size));
  result = gatherAll(joining, comm, &canCopy, answers.data(), 1);
  const bool allCanCopy = result == nccl::kSuccess && std::find(answers.begin(), answers.end(), 0) == answers.end();
  if (joining.peers) joining.peers->finishMeeting(allCanCopy);
  if (!allCanCopy) joining.peers.reset();
  return result;
}

}  // namespace

void joinRanks(const std::shared_ptr<Joining>& joining) {
  ignore(cudaSetDevice(joining->device));
  nccl::Config config;
  nccl::Comm comm = nullptr;
  nccl::Result result = joining->nccl.commInitRankConfig(&comm, joining->options.size, joining->options.id,
                                                         joining->options.rank, &config);
  result = awaitAccepted(*joining, comm, result);
  if (result == nccl::kSuccess) {
    joining->comm = comm;
    if (joining->options.size > 1) result = firstExchange(*joining, comm);
    if (joining->options.size > 1 && result == nccl::kSuccess) result = meetPeers(*joining, comm);
  }
  joining->result = result;
}

}  // namespace lockstep
