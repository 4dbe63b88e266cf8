#include "native/collective/peers.h"

#include <cuda.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string_view>

#include "native/core/failure.h"

namespace lockstep {

namespace {

// The maximum number of pending offers from one rank to another.
constexpr uint64_t kDepth = 16;
// The distance between counts in bytes, so that no two share a cache line.
constexpr uint64_t kCountStride = 64;
// Counts are compared modulo 2^32. No stream waits for a count that is further in the future than this.
constexpr uint32_t kMaxLead = uint32_t{1} << 30;
constexpr uint64_t kDefaultMinBytes = 1;
constexpr std::chrono::milliseconds kPollInterval{1};
// The longest time that a failed job waits for a rank that still runs.
constexpr std::chrono::seconds kReleaseTimeout{10};
// The longest time that a leaving rank waits for the other ranks.
constexpr std::chrono::seconds kLeaveTimeout{2};

// Functions of the driver, found through the runtime: streams write values in memory and wait for them.
struct Driver {
  CUresult (*write)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
  CUresult (*wait)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
};

template <typename Function>
void find(Function& function, const char* name) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult query;
  ignore(cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &query));
  function = reinterpret_cast<Function>(address);
}

const Driver& driver() {
  static const Driver functions = [] {
    Driver driver;
    find(driver.write, "cuStreamWriteValue32");
    find(driver.wait, "cuStreamWaitValue32");
    return driver;
  }();
  return functions;
}

// Runtime and driver errors have the same numbers.
cudaError_t errorOf(CUresult result) { return static_cast<cudaError_t>(result); }

uint64_t randomToken() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

uint64_t minCopyBytes() {
  constexpr const char* kName = "LOCKSTEP_PEER_COPIES";
  const char* value = std::getenv(kName);
  if (!value || !*value) return kDefaultMinBytes;
  const std::string_view text = value;
  if (text == "off") return UINT64_MAX;
  if (text.size() <= 15 && text.find_first_not_of("0123456789") == std::string_view::npos) {
    return std::max<uint64_t>(std::strtoull(value, nullptr, 10), 1);
  }
  throw Failure{"ARGUMENT", std::string(kName) + " is " + value + " in the environment; give a number of bytes or off"};
}

// The beginning of the page. Counts follow, then offers.
struct Peers::Page {
  // Chosen by the rank that creates the page.
  uint64_t token;
  alignas(kCountStride) std::array<std::atomic<uint32_t>, kMaxRanks> hasLeft;
};

struct Peers::Offer {
  // The sequence number of the last offer that the sender made. The other fields are valid only for this offer.
  std::atomic<uint64_t> lastMade;
  // The sequence number of the last offer that the receiver took.
  std::atomic<uint64_t> lastTaken;
  uint64_t bytes;
  uint64_t offset;
  // Whether the sender copies; otherwise it uses NCCL.
  bool isCopied;
  uint32_t number;
  cudaIpcMemHandle_t segment;
};

Peers::Peers(int rank, int size) : rank_(rank), size_(size), peers_(static_cast<size_t>(size)) {}

Peers::~Peers() {
  leave();
  if (file_ >= 0) close(file_);
}

uint64_t Peers::pageBytes() const {
  const uint64_t pairs = static_cast<uint64_t>(size_) * size_;
  const uint64_t bytes = sizeof(Page) + pairs * (2 * kCountStride + kDepth * sizeof(Offer));
  constexpr uint64_t kUnit = 65536;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

Peers::Page& Peers::page() const { return *reinterpret_cast<Page*>(page_); }

PeerHello Peers::hello(uint64_t minBytes, const std::optional<cudaIpcMemHandle_t>& segment) {
  PeerHello hello;
  hello.process = getpid();
  if (!segment || !driver().write || !driver().wait) return hello;
  hello.segment = *segment;
  if (rank_ == 0) {
    file_ = memfd_create("lockstep-peers", MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(pageBytes())) != 0) return hello;
    hello.file = file_;
    hello.token = randomToken();
    if (pwrite(file_, &hello.token, sizeof(hello.token), 0) != sizeof(hello.token)) return hello;
  }
  hello.minBytes = minBytes;
  return hello;
}

bool Peers::meet(const std::vector<PeerHello>& hellos, cudaStream_t stream) {
  minBytes_ = 0;
  for (const PeerHello& hello : hellos) minBytes_ = std::max(minBytes_, hello.minBytes);
  if (minBytes_ == UINT64_MAX || !openPage(hellos[0]) || !tryCounts(stream)) return false;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const PeerHello& hello = hellos[static_cast<size_t>(peer)];
    Peer& state = peers_[static_cast<size_t>(peer)];
    // a process cannot map its own memory
    if (hello.process == getpid()) return false;
    state.process = static_cast<int>(syscall(SYS_pidfd_open, hello.process, 0));
    uint64_t address = 0;
    if (const cudaError_t error = map(state, hello.segment, &address); error != cudaSuccess) {
      ignore(error);
      return false;
    }
  }
  return true;
}

bool Peers::openPage(const PeerHello& first) {
  // On another host or in another PID namespace, this path belongs to a different process, and the file may be anything.
  const std::string path = "/proc/" + std::to_string(first.process) + "/fd/" + std::to_string(first.file);
  const int file = rank_ == 0 ? file_ : open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return false;
  struct stat status {};
  const bool isPage =
      fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == static_cast<off_t>(pageBytes());
  void* data = isPage ? mmap(nullptr, pageBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (rank_ != 0) close(file);
  if (data == MAP_FAILED) return false;
  page_ = static_cast<uint8_t*>(data);
  if (page().token != first.token) return false;
  void* devicePage = nullptr;
  if (const cudaError_t error = cudaHostRegister(page_, pageBytes(), cudaHostRegisterMapped); error != cudaSuccess) {
    ignore(error);
    return false;
  }
  ignore(cudaHostGetDevicePointer(&devicePage, page_, 0));
  deviceAddress_ = reinterpret_cast<uint64_t>(devicePage);
  return deviceAddress_ != 0;
}

// Tests whether streams can write and await counts. Uses this rank's count with itself, which has no other use.
bool Peers::tryCounts(cudaStream_t stream) {
  for (const cudaError_t error : {write(Count::kReady, rank_, rank_, 1, stream),
                                  wait(Count::kReady, rank_, rank_, 1, stream), cudaStreamSynchronize(stream)}) {
    if (error == cudaSuccess) continue;
    ignore(error);
    return false;
  }
  return true;
}

void Peers::finishMeeting(bool allCanCopy) {
  const std::lock_guard lock(mutex_);
  allCanCopy_ = allCanCopy;
  if (file_ >= 0) close(file_);
  file_ = -1;
}

cudaError_t Peers::map(Peer& peer, const cudaIpcMemHandle_t& segment, uint64_t* address) {
  const std::string key(segment.reserved, sizeof(segment.reserved));
  if (const auto entry = peer.mapped.find(key); entry != peer.mapped.end()) {
    *address = entry->second;
    return cudaSuccess;
  }
  void* data = nullptr;
  const cudaError_t error = cudaIpcOpenMemHandle(&data, segment, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) return error;
  *address = reinterpret_cast<uint64_t>(data);
  peer.mapped.emplace(key, *address);
  return cudaSuccess;
}

Peers::Offer& Peers::offerAt(int from, int to, uint64_t number) const {
  const uint64_t pairs = static_cast<uint64_t>(size_) * size_;
  const uint64_t pair = static_cast<uint64_t>(from) * size_ + to;
  uint8_t* const offers = page_ + sizeof(Page) + pairs * 2 * kCountStride;
  return reinterpret_cast<Offer*>(offers)[pair * kDepth + number % kDepth];
}

bool Peers::hasRoom(int peer) const {
  const uint64_t number = peers_[static_cast<size_t>(peer)].offersMade;
  if (number < kDepth) return true;
  return offerAt(rank_, peer, number).lastTaken.load(std::memory_order_acquire) == number - kDepth + 1;
}

cudaError_t Peers::offer(int peer, const ExportedMemory& memory, uint64_t address, uint64_t bytes, cudaStream_t stream,
                         std::optional<uint32_t>* number) {
  Peer& state = peers_[static_cast<size_t>(peer)];
  Offer& offer = offerAt(rank_, peer, state.offersMade);
  const auto location = memory.locationOf(address, bytes);
  offer.bytes = bytes;
  offer.isCopied = location.has_value();
  if (location) {
    offer.number = state.incoming + 1;
    const cudaError_t error = write(Count::kReady, peer, rank_, offer.number, stream);
    if (error != cudaSuccess) return error;
    *number = state.incoming = offer.number;
    offer.offset = location->offset;
    offer.segment = location->segment;
  }
  offer.lastMade.store(++state.offersMade, std::memory_order_release);
  return cudaSuccess;
}

bool Peers::isOffered(int peer, uint64_t bytes) const {
  const uint64_t number = peers_[static_cast<size_t>(peer)].offersTaken;
  const Offer& offer = offerAt(peer, rank_, number);
  return offer.lastMade.load(std::memory_order_acquire) == number + 1 && offer.bytes == bytes;
}

cudaError_t Peers::take(int peer, TakenOffer* taken) {
  Peer& state = peers_[static_cast<size_t>(peer)];
  Offer& offer = offerAt(peer, rank_, state.offersTaken);
  const uint64_t offset = offer.offset;
  const cudaIpcMemHandle_t segment = offer.segment;
  const bool isCopied = offer.isCopied;
  *taken = {peer, offer.number, nullptr};
  offer.lastTaken.store(++state.offersTaken, std::memory_order_release);
  if (!isCopied) return cudaSuccess;
  state.outgoing = taken->number;
  uint64_t address = 0;
  const cudaError_t error = map(state, segment, &address);
  if (error == cudaSuccess) taken->to = reinterpret_cast<void*>(address + offset);
  return error;
}

cudaError_t Peers::copy(const TakenOffer& taken, const void* from, uint64_t bytes, cudaStream_t stream) {
  const auto& [peer, number, to] = taken;
  if (const cudaError_t error = wait(Count::kReady, rank_, peer, number, stream); error != cudaSuccess) return error;
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  return error == cudaSuccess ? write(Count::kArrived, rank_, peer, number, stream) : error;
}

cudaError_t Peers::waitArrived(int peer, uint32_t number, cudaStream_t stream) {
  return wait(Count::kArrived, peer, rank_, number, stream);
}

void Peers::end() {
  const std::lock_guard lock(mutex_);
  if (hasLeft_ || releaseThread_.joinable() || !page_) return;
  releaseOnce(true);
  releaseThread_ = std::thread([this] { release(); });
}

void Peers::release() {
  const auto start = std::chrono::steady_clock::now();
  while (!isLeaving_) {
    releaseOnce(std::chrono::steady_clock::now() - start < kReleaseTimeout);
    std::this_thread::sleep_for(kPollInterval);
  }
}

void Peers::releaseOnce(bool isPatient) {
  const uint64_t base = reinterpret_cast<uint64_t>(page_);
  const auto set = [&](Count kind, int sender, int receiver, uint32_t reached) {
    auto* const count = reinterpret_cast<uint32_t*>(countAt(kind, sender, receiver, base));
    std::atomic_ref<uint32_t>(*count).store(reached + kMaxLead);
  };
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const Peer& state = peers_[static_cast<size_t>(peer)];
    set(Count::kArrived, peer, rank_, state.incoming);
    // the receiver's stream sets this count after all earlier uses of the memory
    if (!isPatient || isGone(peer)) set(Count::kReady, rank_, peer, state.outgoing);
  }
}

bool Peers::isGone(int peer) const {
  pollfd end{peers_[static_cast<size_t>(peer)].process, POLLIN, 0};
  return end.fd >= 0 && poll(&end, 1, 0) == 1;
}

void Peers::leave() {
  const std::lock_guard lock(mutex_);
  if (hasLeft_) return;
  hasLeft_ = true;
  isLeaving_ = true;
  if (releaseThread_.joinable()) releaseThread_.join();
  for (Peer& peer : peers_) {
    for (const auto& [_, address] : peer.mapped) ignore(cudaIpcCloseMemHandle(reinterpret_cast<void*>(address)));
    peer.mapped.clear();
  }
  if (allCanCopy_) {
    page().hasLeft[static_cast<size_t>(rank_)] = 1;
    const auto start = std::chrono::steady_clock::now();
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      while (page().hasLeft[static_cast<size_t>(peer)] == 0 && !isGone(peer) &&
             std::chrono::steady_clock::now() - start < kLeaveTimeout) {
        std::this_thread::sleep_for(kPollInterval);
      }
    }
  }
  if (deviceAddress_) ignore(cudaHostUnregister(page_));
  if (page_) munmap(page_, pageBytes());
  for (const Peer& peer : peers_) {
    if (peer.process >= 0) close(peer.process);
  }
}

uint64_t Peers::countAt(Count kind, int sender, int receiver, uint64_t base) const {
  const uint64_t pair = static_cast<uint64_t>(sender) * size_ + receiver;
  return base + sizeof(Page) + (2 * pair + (kind == Count::kReady ? 0 : 1)) * kCountStride;
}

cudaError_t Peers::write(Count kind, int sender, int receiver, uint32_t value, cudaStream_t stream) {
  return errorOf(
      driver().write(stream, countAt(kind, sender, receiver, deviceAddress_), value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

cudaError_t Peers::wait(Count kind, int sender, int receiver, uint32_t value, cudaStream_t stream) {
  return errorOf(
      driver().wait(stream, countAt(kind, sender, receiver, deviceAddress_), value, CU_STREAM_WAIT_VALUE_GEQ));
}

}  // namespace lockstep
