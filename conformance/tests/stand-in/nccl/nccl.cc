// NCCL without a GPU: ranks are processes of this host that exchange files of a folder, which their id names. A thread
// runs the enqueued operations one after another. Sums of a reduce-scatter go along the ring STAND_IN_RING ("0 2 1";
// default: the order of ranks). It reports the version STAND_IN_NCCL (default: 22707).
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "native/collective/library.h"

using lockstep::nccl::Config;
using lockstep::nccl::DataType;
using lockstep::nccl::kInProgress;
using lockstep::nccl::kSuccess;
using lockstep::nccl::Operation;
using lockstep::nccl::Result;
using lockstep::nccl::UniqueId;

namespace fs = std::filesystem;

namespace {

constexpr Result kInvalidUsage = static_cast<Result>(5);

size_t sizeOf(DataType type) {
  return type == lockstep::nccl::kF32 ? 4 : type == lockstep::nccl::kBytes ? 1 : 2;
}

}  // namespace

struct ncclComm {
  std::string folder;
  int rank = 0;
  int size = 0;
  std::vector<uint64_t> sent;
  std::vector<uint64_t> received;
  std::thread worker;
  std::atomic<int> state{kSuccess};
  std::atomic<bool> aborted{false};

  void join() {
    if (worker.joinable()) worker.join();
  }

  Result run(std::function<void()> work) {
    if (state != kSuccess) return kInvalidUsage;
    join();
    state = kInProgress;
    worker = std::thread([this, work = std::move(work)] {
      work();
      int expected = kInProgress;
      state.compare_exchange_strong(expected, kSuccess);
    });
    return kInProgress;
  }

  void put(const void* data, size_t bytes, int peer) {
    const std::string name = folder + "/" + std::to_string(rank) + "-" + std::to_string(peer) + "-" +
                             std::to_string(sent[peer]++);
    std::ofstream(name + ".new", std::ios::binary).write(static_cast<const char*>(data), static_cast<long>(bytes));
    std::error_code ignored;
    fs::rename(name + ".new", name, ignored);
  }

  // As in NCCL, sizes are not checked: if the message is shorter than expected, the rest of the buffer is unchanged.
  void take(void* data, size_t bytes, int peer) {
    const std::string name = folder + "/" + std::to_string(peer) + "-" + std::to_string(rank) + "-" +
                             std::to_string(received[peer]++);
    while (!fs::exists(name)) {
      if (aborted) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream(name, std::ios::binary).read(static_cast<char*>(data), static_cast<long>(bytes));
    fs::remove(name);
  }
};

namespace {

struct Transfer {
  ncclComm* comm;
  void* data;
  size_t bytes;
  int peer;
  bool out;
};

thread_local bool grouped = false;
thread_local std::vector<Transfer> group;

// All sends run before all receives. This cannot deadlock, because writing a file does not wait for its reader.
void deliver(ncclComm* comm, const std::vector<Transfer>& transfers) {
  for (const Transfer& each : transfers) {
    if (each.out) comm->put(each.data, each.bytes, each.peer);
  }
  for (const Transfer& each : transfers) {
    if (!each.out) comm->take(each.data, each.bytes, each.peer);
  }
}

Result transfer(Transfer what) {
  if (what.peer < 0 || what.peer >= what.comm->size || what.bytes == 0) return kInvalidUsage;
  if (grouped) return group.push_back(what), kSuccess;
  return what.comm->run([what] { deliver(what.comm, {what}); });
}

float load(const uint8_t* data, DataType type, size_t at) {
  if (type == lockstep::nccl::kF32) {
    float value;
    std::memcpy(&value, data + 4 * at, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + 2 * at, 2);
  return type == lockstep::nccl::kBf16 ? __bfloat162float(__ushort_as_bfloat16(bits))
                                       : __half2float(__ushort_as_half(bits));
}

void store(uint8_t* data, DataType type, size_t at, float value) {
  if (type == lockstep::nccl::kF32) {
    std::memcpy(data + 4 * at, &value, 4);
    return;
  }
  const uint16_t bits = type == lockstep::nccl::kBf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value))
                                                      : __half_as_ushort(__float2half_rn(value));
  std::memcpy(data + 2 * at, &bits, 2);
}

std::vector<int> ringOf(int size) {
  std::vector<int> ring;
  if (const char* text = std::getenv("STAND_IN_RING")) {
    std::istringstream in(text);
    for (int rank; in >> rank;) ring.push_back(rank);
  }
  if (ring.size() != static_cast<size_t>(size)) {
    ring.clear();
    for (int rank = 0; rank < size; ++rank) ring.push_back(rank);
  }
  return ring;
}

void reduceScatter(ncclComm* comm, const uint8_t* x, uint8_t* out, size_t count, DataType type) {
  const size_t bytes = count * sizeOf(type);
  std::vector<std::vector<uint8_t>> parts(comm->size, std::vector<uint8_t>(bytes));
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < comm->size; ++peer) {
    transfers.push_back({comm, const_cast<uint8_t*>(x) + peer * bytes, bytes, peer, true});
    transfers.push_back({comm, parts[peer].data(), bytes, peer, false});
  }
  deliver(comm, transfers);
  const std::vector<int> ring = ringOf(comm->size);
  size_t own = 0;
  while (ring[own] != comm->rank) ++own;
  for (size_t i = 0; i < count; ++i) {
    uint8_t total[4];
    for (int step = 1; step <= comm->size; ++step) {
      const uint8_t* part = parts[ring[(own + step) % comm->size]].data();
      const float value = load(part, type, i);
      store(total, type, 0, step == 1 ? value : load(total, type, 0) + value);
    }
    std::memcpy(out + i * sizeOf(type), total, sizeOf(type));
  }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Result ncclGetVersion(int* version) {
  const char* told = std::getenv("STAND_IN_NCCL");
  return *version = told ? std::atoi(told) : 22707, kSuccess;
}

Result ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->bytes, sizeof(id->bytes), "%s/nccl-XXXXXX", fs::temp_directory_path().c_str());
  return mkdtemp(id->bytes) ? kSuccess : kInvalidUsage;
}

Result ncclCommInitRankConfig(ncclComm** comm, int size, UniqueId id, int rank, Config* config) {
  if (rank < 0 || rank >= size || config->magic != 0xcafebeef) return kInvalidUsage;
  auto* made = new ncclComm;
  made->folder = id.bytes;
  made->rank = rank;
  made->size = size;
  made->sent.resize(size);
  made->received.resize(size);
  *comm = made;
  return made->run([made] {
    std::vector<Transfer> transfers;
    static char here;
    for (int peer = 0; peer < made->size; ++peer) {
      if (peer == made->rank) continue;
      transfers.push_back({made, &here, 1, peer, true});
    }
    for (const Transfer& each : transfers) made->put(&here, 1, each.peer);
    char there;
    for (const Transfer& each : transfers) made->take(&there, 1, each.peer);
  });
}

Result ncclCommAbort(ncclComm* comm) {
  comm->aborted = true;
  comm->join();
  std::error_code ignored;
  fs::remove_all(comm->folder, ignored);
  delete comm;
  return kSuccess;
}

Result ncclCommDestroy(ncclComm* comm) {
  comm->join();
  // the last process also removes the folder
  std::error_code ignored;
  fs::remove(comm->folder, ignored);
  delete comm;
  return kSuccess;
}

Result ncclCommGetAsyncError(ncclComm* comm, Result* state) {
  return *state = static_cast<Result>(comm->state.load()), kSuccess;
}

const char* ncclGetErrorString(Result) { return "from the stand-in"; }
const char* ncclGetLastError(ncclComm*) { return ""; }

Result ncclGroupStart() { return grouped = true, group.clear(), kSuccess; }

Result ncclGroupEnd() {
  grouped = false;
  std::vector<Transfer> transfers;
  std::swap(transfers, group);
  if (transfers.empty()) return kSuccess;
  ncclComm* comm = transfers[0].comm;
  return comm->run([comm, transfers] { deliver(comm, transfers); });
}

Result ncclSend(const void* x, size_t count, DataType type, int peer, ncclComm* comm, cudaStream_t) {
  return transfer({comm, const_cast<void*>(x), count * sizeOf(type), peer, true});
}

Result ncclRecv(void* out, size_t count, DataType type, int peer, ncclComm* comm, cudaStream_t) {
  return transfer({comm, out, count * sizeOf(type), peer, false});
}

Result ncclAllGather(const void* x, void* out, size_t count, DataType type, ncclComm* comm, cudaStream_t) {
  const size_t bytes = count * sizeOf(type);
  return comm->run([=] {
    auto* all = static_cast<uint8_t*>(out);
    std::memmove(all + comm->rank * bytes, x, bytes);
    std::vector<Transfer> transfers;
    for (int peer = 0; peer < comm->size; ++peer) {
      if (peer == comm->rank || bytes == 0) continue;
      transfers.push_back({comm, all + comm->rank * bytes, bytes, peer, true});
      transfers.push_back({comm, all + peer * bytes, bytes, peer, false});
    }
    deliver(comm, transfers);
  });
}

Result ncclReduceScatter(const void* x, void* out, size_t count, DataType type, Operation, ncclComm* comm,
                         cudaStream_t) {
  return comm->run([=] { reduceScatter(comm, static_cast<const uint8_t*>(x), static_cast<uint8_t*>(out), count, type); });
}

Result ncclBroadcast(const void* x, void* out, size_t count, DataType type, int root, ncclComm* comm, cudaStream_t) {
  const size_t bytes = count * sizeOf(type);
  return comm->run([=] {
    std::vector<Transfer> transfers;
    if (comm->rank != root) {
      transfers.push_back({comm, out, bytes, root, false});
    } else {
      if (out != x) std::memmove(out, x, bytes);
      for (int peer = 0; peer < comm->size; ++peer) {
        if (peer != root) transfers.push_back({comm, out, bytes, peer, true});
      }
    }
    deliver(comm, transfers);
  });
}

}  // extern "C"
