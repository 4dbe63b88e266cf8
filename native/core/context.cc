#include "native/core/context.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "native/core/fence.h"
#include "native/gemm/plan.h"

namespace lockstep {

namespace {

// The number of bytes of the widest memory access of a kernel. Arguments must be aligned to it.
constexpr uint64_t kWidestAccess = 16;

// The bytes after a workspace that no operation may write. They exist if LOCKSTEP_FENCES is set (in tests).
constexpr uint64_t kFenceBytes = 4096;
constexpr uint8_t kFence = 0xa5;

bool isFenced() {
  static const bool fenced = std::getenv("LOCKSTEP_FENCES") != nullptr;
  return fenced;
}

// All open contexts of the process. A context that runs out of memory makes the others release memory.
std::mutex openMutex;
std::vector<Context*> openContexts;

// Whether the error is sticky: every later CUDA call of the process returns it again.
bool isSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorECCUncorrectable:
    case cudaErrorContained:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string describe(const char* what, cudaError_t error) {
  return std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
}

Context::Context(int device) : device_(device), owner_(std::this_thread::get_id()) {
  try {
    open();
  } catch (...) {
    close();
    throw;
  }
}

void Context::open() {
  int count = 0;
  if (cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) fail("no GPU", error);
  if (device_ >= count) {
    throw Failure{"BACKEND", "device " + std::to_string(device_) + " does not exist; there are " +
                                 std::to_string(count) + ", numbered from 0"};
  }
  check("cudaSetDevice", cudaSetDevice(device_));
  check("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties_, device_));
  check("cudaStreamCreate", cudaStreamCreateWithFlags(&main_.stream, cudaStreamNonBlocking));
  check("cudaStreamCreate", cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, {device_}};
  check("cudaMemPoolCreate", cudaMemPoolCreate(&pool_, &props));
  // With a lower release threshold, each synchronization would return free memory to the device. Instead, trim() and
  // running out of memory return it.
  uint64_t keepAll = UINT64_MAX;
  check("cudaMemPoolSetAttribute", cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keepAll));
  // With internal dependencies, an allocation on one stream could reuse memory freed on the other and then wait for
  // that stream.
  int never = 0;
  check("cudaMemPoolSetAttribute", cudaMemPoolSetAttribute(pool_, cudaMemPoolReuseAllowInternalDependencies, &never));
  openTickets(main_);
  check("cublasLtCreate", cublasLtCreate(&blas_));
  const std::lock_guard lock(openMutex);
  openContexts.push_back(this);
}

Context::~Context() { close(); }

void Context::enter() {
  if (closed_) throw Failure{"DISPOSED", "the cuda backend was used after it was disposed"};
  if (!poison_.empty()) {
    throw Failure{"BACKEND", "the cuda backend broke earlier and cannot be used any more; the first cause: " + poison_};
  }
  // other code in this process may have made another device current
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess || current != device_) check("cudaSetDevice", cudaSetDevice(device_));
}

// Errors are ignored here, because they occur only if the device is already unusable.
void Context::close() {
  if (closed_) return;
  closed_ = true;
  {
    const std::lock_guard lock(openMutex);
    std::erase(openContexts, this);
  }
  {
    std::unique_lock lock(readsMutex_);
    readsDone_.wait(lock, [this] { return reads_ == 0; });
  }
  ignore(cudaSetDevice(device_));
  // closing the communicators aborts work that waits for other ranks, because it might never finish
  communicators_.reset();
  if (capture_) abortCapture();
  lane_ = &main_;
  if (side_.stream) ignore(cudaStreamSynchronize(side_.stream));
  sideWork_.clear();
  if (!graphs_.empty()) ignore(cudaStreamSynchronize(main_.stream));
  for (auto& [_, graph] : graphs_) release(std::move(graph));
  graphs_.clear();
  for (const auto& [address, bytes] : sizes_) {
    if (exported_.free(address)) continue;
    allow(address, bytes);
    ignore(cudaFreeAsync(reinterpret_cast<void*>(address), main_.stream));
  }
  sizes_.clear();
  blocks_.clear();
  live_ = 0;
  for (void* snapshot : snapshots_) ignore(cudaFreeAsync(snapshot, main_.stream));
  snapshots_.clear();
  giveBack(side_);
  giveBack(main_);
  for (const Lane* lane : {&side_, &main_}) {
    if (lane->stream) ignore(cudaStreamSynchronize(lane->stream));
  }
  uploads_.clear();
  pinned_.clear();
  hostCopies_.clear();
  freeHostBlocks_.clear();
  forgetStamps();
  gemmPlans_.reset();
  if (blas_) cublasLtDestroy(blas_);
  for (const Lane* lane : {&side_, &main_}) {
    if (lane->tickets) ignore(cudaFree(lane->tickets));
  }
  if (pool_) ignore(cudaMemPoolDestroy(pool_));
  exported_.close();
  for (cudaStream_t stream : {copies_, side_.stream, main_.stream}) {
    if (stream) ignore(cudaStreamDestroy(stream));
  }
}

size_t Context::spareList(uint64_t bytes) {
  if (bytes > uint64_t{1} << kLargestShift) return kSpareLists;
  const uint64_t minBytes = uint64_t{1} << kSmallestShift;
  return static_cast<size_t>(std::bit_width(std::max(bytes, minBytes) - 1) - kSmallestShift);
}

uint64_t Context::allocate(uint64_t bytes) {
  // Makes the side stream wait for all work that used memory freed so far; exported memory requires it.
  void* data = isAside() && bytes >= exportedFrom_ ? exported_.allocate(bytes) : nullptr;
  const uint64_t address = reinterpret_cast<uint64_t>(data ? data : takeBlock(bytes));
  blocks_.emplace(address, sizes_.emplace(address, bytes).first);
  live_ += bytes;
  if (isAside()) use(address);
  return address;
}

void* Context::takeBlock(uint64_t bytes) {
  const size_t list = spareList(bytes);
  const uint64_t blockBytes = list < kSpareLists ? uint64_t{1} << (list + kSmallestShift) : bytes;
  void* data = list < kSpareLists ? takeSpare(list) : nullptr;
  if (!data) data = take(blockBytes);
  if (!data) {
    if (void* exported = takeExported(bytes)) return exported;
    data = takeTrimmed(blockBytes);
  }
  forbidBeyond(reinterpret_cast<uint64_t>(data), bytes, blockBytes);
  return data;
}

void* Context::takeExported(uint64_t bytes) {
  if (capture_) return nullptr;
  void* data = exported_.allocateFree(bytes);
  // free memory may still be in use on the side stream
  if (data) joinAll();
  return data;
}

void Context::exportFrom(uint64_t bytes) {
  exportedFrom_ = bytes;
  ++exporters_;
}

void Context::stopExport() {
  if (--exporters_ == 0) exportedFrom_ = UINT64_MAX;
}

void* Context::takeSpare(size_t list) {
  // The side stream may also take free blocks of the main stream, because side work starts after all work that used these blocks.
  for (Lane* lane : {lane_, &main_}) {
    if (lane->spares[list].empty()) continue;
    void* data = lane->spares[list].back();
    lane->spares[list].pop_back();
    return data;
  }
  return nullptr;
}

void Context::free(uint64_t address) {
  const auto entry = sizes_.find(address);
  if (entry == sizes_.end()) return;
  const uint64_t bytes = entry->second;
  void* data = reinterpret_cast<void*>(address);
  release(address);
  live_ -= bytes;
  sizes_.erase(entry);
  blocks_.erase(address);
  if (exported_.free(address)) return;
  if (const size_t list = spareList(bytes); list < kSpareLists) {
    forbidBeyond(address, 0, uint64_t{1} << (list + kSmallestShift));
    lane_->spares[list].push_back(data);
  } else if (poison_.empty()) {
    check("cudaFreeAsync", cudaFreeAsync(data, stream()));
  }
}

Workspace Context::workspace(uint64_t bytes) {
  checkWorkspace();
  Workspace& workspace = lane_->workspace;
  if (bytes > workspace.bytes) {
    if (workspace.data && capture_) {
      capture_->outgrown.push_back(workspace.data);
    } else if (workspace.data) {
      check("cudaFreeAsync", cudaFreeAsync(workspace.data, stream()));
    }
    workspace = {};
    const uint64_t fencedBytes = bytes + (isFenced() ? kFenceBytes : 0);
    void* data = take(fencedBytes);
    workspace = {data ? data : takeTrimmed(fencedBytes), bytes};
  }
  // During a capture there is no fence: it would be written at every replay, but checked only once.
  if (!isFenced() || capture_) return workspace;
  lane_->fence = static_cast<uint8_t*>(workspace.data) + bytes;
  check("fence", cudaMemsetAsync(lane_->fence, kFence, kFenceBytes, stream()));
  return {workspace.data, bytes};
}

void Context::checkWorkspace() {
  if (!lane_->fence || closed_ || !poison_.empty()) return;
  std::array<uint8_t, kFenceBytes> fenceBytes;
  const void* fence = std::exchange(lane_->fence, nullptr);
  check("fence", cudaMemcpyAsync(fenceBytes.data(), fence, kFenceBytes, cudaMemcpyDeviceToHost, stream()));
  check("cudaStreamSynchronize", cudaStreamSynchronize(stream()));
  if (std::all_of(fenceBytes.begin(), fenceBytes.end(), [](uint8_t byte) { return byte == kFence; })) return;
  throw Failure{"BACKEND", "an operation wrote beyond the workspace that it requested"};
}

void* Context::take(uint64_t bytes) {
  void* data = nullptr;
  // an allocation on the captured stream would become part of the graph
  const cudaStream_t stream = capture_ ? copies_ : lane_->stream;
  const cudaError_t error = cudaMallocFromPoolAsync(&data, bytes, pool_, stream);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check("cudaMallocFromPoolAsync", error);
  if (capture_) check("cudaStreamSynchronize", cudaStreamSynchronize(copies_));
  return data;
}

void* Context::takeTrimmed(uint64_t bytes) {
  // releasing waits for the device, which is not possible during a capture
  if (!capture_) {
    trimAll();
    if (void* data = take(bytes)) return data;
  }
  size_t free = 0;
  size_t total = 0;
  ignore(cudaMemGetInfo(&free, &total));
  throw Failure{"OUT_OF_MEMORY", "", bytes, free};
}

void Context::openTickets(Lane& lane) {
  // cudaMalloc, not the pool, because trim() returns the pool's free memory
  check("cudaMalloc", cudaMalloc(reinterpret_cast<void**>(&lane.tickets), sizeof(uint32_t)));
  check("cudaMemsetAsync", cudaMemsetAsync(lane.tickets, 0, sizeof(uint32_t), lane.stream));
}

void Context::giveBack(Lane& lane) {
  for (size_t list = 0; list < kSpareLists; ++list) {
    for (void* data : lane.spares[list]) {
      allow(reinterpret_cast<uint64_t>(data), uint64_t{1} << (list + kSmallestShift));
      ignore(cudaFreeAsync(data, lane.stream));
    }
    lane.spares[list].clear();
  }
  if (lane.workspace.data) ignore(cudaFreeAsync(lane.workspace.data, lane.stream));
  lane.workspace = {};
  lane.fence = nullptr;
}

void Context::trim() {
  requireNoCapture("memory is given back");
  giveBack(side_);
  giveBack(main_);
  pinned_.clear();
  synchronize();
  freeHostBlocks_.clear();
  if (exporters_ == 0) exported_.trim();
  check("cudaMemPoolTrimTo", cudaMemPoolTrimTo(pool_, 0));
}

// Contexts of other threads keep the blocks in their free lists, because only their own thread may change the lists.
void Context::trimAll() {
  const std::lock_guard lock(openMutex);
  for (Context* context : openContexts) {
    if (context->device_ != device_ || context->owner_ != owner_ || !context->poison_.empty()) continue;
    context->giveBack(context->side_);
    context->giveBack(context->main_);
  }
  check("cudaDeviceSynchronize", cudaDeviceSynchronize());
  for (Context* context : openContexts) {
    if (context->device_ == device_) ignore(cudaMemPoolTrimTo(context->pool_, 0));
  }
}

std::map<uint64_t, uint64_t>::const_iterator Context::blockAt(uint64_t address) const {
  if (const auto block = blocks_.find(address); block != blocks_.end()) return block->second;
  const auto after = sizes_.upper_bound(address);
  return after == sizes_.begin() ? sizes_.end() : std::prev(after);
}

void* Context::range(const char* name, uint64_t address, uint64_t bytes) {
  const auto block = blockAt(address);
  if (block == sizes_.end() || address - block->first > block->second) {
    throw Failure{"ARGUMENT", std::string(name) + " is no live tensor of this backend"};
  }
  if (const uint64_t rest = block->second - (address - block->first); rest < bytes) {
    throw Failure{"ARGUMENT", std::string(name) + " has " + std::to_string(rest) + " bytes, but " +
                                  std::to_string(bytes) + " are needed"};
  }
  use(block->first);
  return reinterpret_cast<void*>(address);
}

void* Context::pointer(const char* name, uint64_t address, uint64_t bytes) {
  void* data = range(name, address, bytes);
  const uint64_t alignment = std::min(kWidestAccess, std::bit_floor(std::max<uint64_t>(bytes, 1)));
  if (address % alignment != 0) {
    throw Failure{"ARGUMENT", std::string(name) + " begins " + std::to_string(address % alignment) +
                                  " bytes after a multiple of " + std::to_string(alignment) +
                                  ", where a kernel cannot read it; slice() makes a copy that begins at one"};
  }
  return data;
}

void Context::mark() {
  requireNoCapture("a moment is marked");
  marks_.push_back(stamp());
}

Event Context::stamp() {
  Event event(true);
  check("cudaEventRecord", event.record(stream()));
  return event;
}

float Context::between(const Event& first, const Event& second) {
  float ms = 0;
  for (const Event* event : {&first, &second}) check("cudaEventSynchronize", event->wait());
  check("cudaEventElapsedTime", cudaEventElapsedTime(&ms, first.handle(), second.handle()));
  return ms;
}

std::vector<float> Context::spans() {
  requireNoCapture("times are taken");
  std::vector<float> spans;
  for (size_t i = 1; i < marks_.size(); ++i) spans.push_back(between(marks_[i - 1], marks_[i]));
  forgetStamps();
  return spans;
}

std::vector<float> Context::waits() {
  requireNoCapture("times are taken");
  std::vector<float> waits(numbered_);
  for (const Wait& wait : waits_) waits[wait.work] += between(wait.begin, wait.end);
  return waits;
}

void Context::forgetStamps() {
  marks_.clear();
  waits_.clear();
  numbered_ = 0;
  for (SideWork& work : sideWork_) work.number.reset();
}

MemoryUse Context::memory() const {
  uint64_t reserved = 0;
  if (!closed_ && poison_.empty()) ignore(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved));
  return {live_, reserved + exported_.reserved(), sizes_.size()};
}

void Context::synchronize() {
  requireNoCapture("work is waited for");
  if (!isAside()) joinAll();
  check("cudaStreamSynchronize", cudaStreamSynchronize(stream()));
}

void Context::check(const char* what, cudaError_t error) {
  if (error != cudaSuccess) fail(what, error);
}

void Context::check(const char* what, cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Failure{"BACKEND", std::string(what) + ": cuBLASLt: " + cublasLtGetStatusName(status)};
}

void Context::fail(const char* what, cudaError_t error) {
  cudaGetLastError();
  const std::string message = describe(what, error);
  if (isSticky(error) && poison_.empty()) poison_ = message;
  throw Failure{"BACKEND", message};
}

}  // namespace lockstep
