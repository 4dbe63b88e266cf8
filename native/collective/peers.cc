#include "native/collective/peers.h"

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>

#include "native/core/failure.h"

namespace lockstep {

namespace {

// The number of offers of one rank to another that may wait to be taken.
constexpr uint64_t kDepth = 16;
// Counts are this far apart, so that no two are in a cache line.
constexpr uint64_t kApart = 64;
// Values are compared modulo 2^32. No stream waits for one that is this far ahead.
constexpr uint32_t kAhead = uint32_t{1} << 30;
// The default of leastCopied.
constexpr uint64_t kLeast = 1;

// Functions of the driver, which the runtime finds: streams write and wait for values in memory.
struct Driver {
  CUresult (*write)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
  CUresult (*wait)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
};

template <typename Function>
void find(Function& function, const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how;
  ignore(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how));
  function = reinterpret_cast<Function>(found);
}

const Driver& driver() {
  static const Driver found = [] {
    Driver driver;
    find(driver.write, "cuStreamWriteValue32");
    find(driver.wait, "cuStreamWaitValue32");
    return driver;
  }();
  return found;
}

cudaError_t errorOf(CUresult result) { return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown; }

uint64_t randomToken() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

uint64_t leastCopied() {
  constexpr const char* kName = "LOCKSTEP_PEER_COPIES";
  const char* given = std::getenv(kName);
  if (!given || !*given) return kLeast;
  const std::string_view text = given;
  if (text == "off") return UINT64_MAX;
  if (text.size() <= 15 && text.find_first_not_of("0123456789") == std::string_view::npos) {
    return std::strtoull(given, nullptr, 10);
  }
  throw Failure{"ARGUMENT", std::string(kName) + " is " + given + " in the environment; give a number of bytes or off"};
}

// A page begins with the token of its creator. Counts follow, then offers.
struct Peers::Page {
  uint64_t token;
};

struct Peers::Offer {
  // The number of offers made up to this one; until then the other fields are those of an earlier one.
  std::atomic<uint64_t> made;
  // The number of offers taken up to this one.
  std::atomic<uint64_t> taken;
  uint64_t bytes;
  uint64_t offset;
  uint64_t isCopied;
  cudaIpcMemHandle_t segment;
};

Peers::Peers(int rank, int size) : rank_(rank), size_(size), peers_(static_cast<size_t>(size)) {}

Peers::~Peers() {
  for (const Peer& peer : peers_) {
    for (const auto& [_, address] : peer.mapped) ignore(cudaIpcCloseMemHandle(reinterpret_cast<void*>(address)));
  }
  if (onDevice_) ignore(cudaHostUnregister(page_));
  if (page_) munmap(page_, pageBytes());
  met();
}

uint64_t Peers::pageBytes() const {
  const uint64_t pairs = static_cast<uint64_t>(size_) * size_;
  const uint64_t bytes = kApart + pairs * (2 * kApart + kDepth * sizeof(Offer));
  constexpr uint64_t kPage = 65536;
  return (bytes + kPage - 1) / kPage * kPage;
}

PeerHello Peers::hello(uint64_t least, const ExportedMemory::Place* segment) {
  PeerHello hello;
  hello.process = getpid();
  if (!segment || !driver().write || !driver().wait) return hello;
  hello.segment = segment->segment;
  if (rank_ == 0) {
    file_ = memfd_create("lockstep-peers", MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(pageBytes())) != 0) return hello;
    hello.file = file_;
    hello.token = randomToken();
    if (pwrite(file_, &hello.token, sizeof(hello.token), 0) != sizeof(hello.token)) return hello;
  }
  hello.least = least;
  return hello;
}

bool Peers::meet(const std::vector<PeerHello>& all) {
  least_ = 0;
  for (const PeerHello& each : all) least_ = std::max(least_, each.least);
  if (least_ == UINT64_MAX || !openPage(all[0])) return false;
  for (int peer = 0; peer < size_; ++peer) {
    const PeerHello& told = all[static_cast<size_t>(peer)];
    if (peer == rank_) continue;
    // a process cannot map its own memory
    if (told.process == getpid()) return false;
    void* data = nullptr;
    if (const cudaError_t error = cudaIpcOpenMemHandle(&data, told.segment, cudaIpcMemLazyEnablePeerAccess);
        error != cudaSuccess) {
      ignore(error);
      return false;
    }
    const std::string key(told.segment.reserved, sizeof(told.segment.reserved));
    peers_[static_cast<size_t>(peer)].mapped.emplace(key, reinterpret_cast<uint64_t>(data));
  }
  return true;
}

bool Peers::openPage(const PeerHello& first) {
  const std::string path = "/proc/" + std::to_string(first.process) + "/fd/" + std::to_string(first.file);
  const int file = rank_ == 0 ? file_ : open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  void* data = mmap(nullptr, pageBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (rank_ != 0) close(file);
  if (data == MAP_FAILED) return false;
  page_ = static_cast<uint8_t*>(data);
  // another host may have a process of this number
  if (reinterpret_cast<const Page*>(page_)->token != first.token) return false;
  void* onDevice = nullptr;
  if (const cudaError_t error = cudaHostRegister(page_, pageBytes(), cudaHostRegisterMapped); error != cudaSuccess) {
    ignore(error);
    return false;
  }
  ignore(cudaHostGetDevicePointer(&onDevice, page_, 0));
  onDevice_ = reinterpret_cast<uint64_t>(onDevice);
  return onDevice_ != 0;
}

void Peers::met() {
  if (file_ >= 0) close(file_);
  file_ = -1;
}

Peers::Offer& Peers::offerAt(int from, int to, uint64_t number) const {
  const uint64_t pairs = static_cast<uint64_t>(size_) * size_;
  const uint64_t pair = static_cast<uint64_t>(from) * size_ + to;
  uint8_t* const offers = page_ + kApart + pairs * 2 * kApart;
  return reinterpret_cast<Offer*>(offers)[pair * kDepth + number % kDepth];
}

bool Peers::hasRoom(int peer) const {
  const uint64_t number = peers_[static_cast<size_t>(peer)].offered;
  if (number < kDepth) return true;
  return offerAt(rank_, peer, number).taken.load(std::memory_order_acquire) == number - kDepth + 1;
}

bool Peers::offer(int peer, const ExportedMemory& memory, uint64_t address, uint64_t bytes) {
  const uint64_t number = peers_[static_cast<size_t>(peer)].offered++;
  Offer& offer = offerAt(rank_, peer, number);
  const auto place = memory.placeOf(address, bytes);
  offer.bytes = bytes;
  offer.isCopied = place ? 1 : 0;
  if (place) {
    offer.offset = place->offset;
    offer.segment = place->segment;
  }
  offer.made.store(number + 1, std::memory_order_release);
  return place.has_value();
}

bool Peers::isOffered(int peer, uint64_t bytes) const {
  const uint64_t number = peers_[static_cast<size_t>(peer)].taken;
  const Offer& offer = offerAt(peer, rank_, number);
  return offer.made.load(std::memory_order_acquire) == number + 1 && offer.bytes == bytes;
}

cudaError_t Peers::take(int peer, void** to) {
  Peer& of = peers_[static_cast<size_t>(peer)];
  const uint64_t number = of.taken++;
  Offer& offer = offerAt(peer, rank_, number);
  const uint64_t offset = offer.offset;
  const cudaIpcMemHandle_t segment = offer.segment;
  const bool isCopied = offer.isCopied != 0;
  offer.taken.store(number + 1, std::memory_order_release);
  *to = nullptr;
  if (!isCopied) return cudaSuccess;
  const std::string key(segment.reserved, sizeof(segment.reserved));
  const auto known = of.mapped.find(key);
  uint64_t mapped = known == of.mapped.end() ? 0 : known->second;
  if (!mapped) {
    void* data = nullptr;
    const cudaError_t error = cudaIpcOpenMemHandle(&data, segment, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) return error;
    mapped = reinterpret_cast<uint64_t>(data);
    of.mapped.emplace(key, mapped);
  }
  *to = reinterpret_cast<void*>(mapped + offset);
  return cudaSuccess;
}

cudaError_t Peers::writeReady(int peer, cudaStream_t stream) {
  return write(Count::kReady, peer, rank_, ++peers_[static_cast<size_t>(peer)].ready, stream);
}

cudaError_t Peers::copy(int peer, void* to, const void* from, uint64_t bytes, cudaStream_t stream) {
  const uint32_t number = ++peers_[static_cast<size_t>(peer)].copied;
  if (const cudaError_t error = wait(Count::kReady, rank_, peer, number, stream); error != cudaSuccess) return error;
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  return error == cudaSuccess ? write(Count::kArrived, rank_, peer, number, stream) : error;
}

cudaError_t Peers::waitArrived(int peer, cudaStream_t stream) {
  return wait(Count::kArrived, peer, rank_, ++peers_[static_cast<size_t>(peer)].arrived, stream);
}

void Peers::release() {
  if (!page_) return;
  const uint64_t base = reinterpret_cast<uint64_t>(page_);
  const auto set = [&](Count which, int sender, int receiver, uint32_t reached) {
    auto* const count = reinterpret_cast<uint32_t*>(countAt(which, sender, receiver, base));
    std::atomic_ref<uint32_t>(*count).store(reached + kAhead);
  };
  for (int peer = 0; peer < size_; ++peer) {
    const Peer& of = peers_[static_cast<size_t>(peer)];
    set(Count::kReady, rank_, peer, of.copied);
    set(Count::kArrived, peer, rank_, of.arrived);
  }
}

uint64_t Peers::countAt(Count which, int sender, int receiver, uint64_t base) const {
  const uint64_t pair = static_cast<uint64_t>(sender) * size_ + receiver;
  return base + kApart + (2 * pair + (which == Count::kReady ? 0 : 1)) * kApart;
}

cudaError_t Peers::write(Count which, int sender, int receiver, uint32_t value, cudaStream_t stream) {
  return errorOf(
      driver().write(stream, countAt(which, sender, receiver, onDevice_), value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

cudaError_t Peers::wait(Count which, int sender, int receiver, uint32_t value, cudaStream_t stream) {
  return errorOf(driver().wait(stream, countAt(which, sender, receiver, onDevice_), value, CU_STREAM_WAIT_VALUE_GEQ));
}

}  // namespace lockstep
