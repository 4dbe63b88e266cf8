#include "native/context.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lockstep {

namespace {

// An upload larger than this goes in pieces, so that copying into pinned memory and from it overlap.
constexpr size_t kUploadPiece = size_t{8} << 20;
constexpr size_t kUploadsInFlight = 4;
// Pinned buffers kept for reuse, and the largest worth keeping.
constexpr size_t kKeptBuffers = 8;
constexpr size_t kLargestKept = size_t{64} << 20;

// After these the device answers nothing but the same error again.
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

std::string describe(const char* what, cudaError_t error) {
  return std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
}

}  // namespace

PinnedBuffer::PinnedBuffer(size_t bytes) : bytes_(bytes) {
  if (cudaError_t error = cudaMallocHost(&data_, bytes); error != cudaSuccess) {
    cudaGetLastError();
    throw Failure{"OUT_OF_MEMORY", describe("pinned host memory", error), bytes, 0};
  }
}

PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }

Context::Context(int device) : device_(device) {
  int count = 0;
  if (cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) fail("no GPU", error);
  if (device < 0 || device >= count) {
    throw Failure{"BACKEND", "device " + std::to_string(device) + " is not there; there are " +
                                 std::to_string(count) + ", numbered from 0"};
  }
  check("cudaSetDevice", cudaSetDevice(device));
  check("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties_, device));
  check("cudaStreamCreate", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, {device}};
  check("cudaMemPoolCreate", cudaMemPoolCreate(&pool_, &props));
  uint64_t keepAll = UINT64_MAX;
  check("cudaMemPoolSetAttribute",
        cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keepAll));
  check("cublasLtCreate", cublasLtCreate(&blas_));
}

Context::~Context() { close(); }

void Context::enter() {
  if (closed_) throw Failure{"DISPOSED", "the cuda backend was used after it was disposed"};
  if (!poison_.empty()) {
    throw Failure{"BACKEND", "the cuda backend broke earlier and answers nothing more; the first cause: " + poison_};
  }
  // whoever else is in this process may have made another device current
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess || current != device_) check("cudaSetDevice", cudaSetDevice(device_));
}

// Whatever fails here fails because the device is already gone.
void Context::close() {
  if (closed_) return;
  closed_ = true;
  {
    std::unique_lock lock(readsMutex_);
    readsDone_.wait(lock, [this] { return reads_ == 0; });
  }
  cudaSetDevice(device_);
  for (const auto& [address, bytes] : sizes_) cudaFreeAsync(reinterpret_cast<void*>(address), stream_);
  sizes_.clear();
  live_ = 0;
  giveBackSpares();
  if (stream_) cudaStreamSynchronize(stream_);
  for (Upload& upload : uploads_) cudaEventDestroy(upload.done);
  uploads_.clear();
  pinned_.clear();
  for (cudaEvent_t mark : marks_) cudaEventDestroy(mark);
  marks_.clear();
  if (blas_) cublasLtDestroy(blas_);
  if (pool_) cudaMemPoolDestroy(pool_);
  if (stream_) cudaStreamDestroy(stream_);
  cudaGetLastError();
}

size_t Context::spareList(uint64_t bytes) {
  if (bytes > uint64_t{1} << kLargestShift) return kSpareLists;
  const uint64_t least = uint64_t{1} << kSmallestShift;
  return static_cast<size_t>(std::bit_width(std::max(bytes, least) - 1) - kSmallestShift);
}

uint64_t Context::allocate(uint64_t bytes) {
  const size_t list = spareList(bytes);
  void* data = nullptr;
  if (list == kSpareLists) {
    data = takeOrThrow(bytes);
  } else if (spares_[list].empty()) {
    data = takeOrThrow(uint64_t{1} << (list + kSmallestShift));
  } else {
    data = spares_[list].back();
    spares_[list].pop_back();
  }
  const uint64_t address = reinterpret_cast<uint64_t>(data);
  sizes_.emplace(address, bytes);
  live_ += bytes;
  return address;
}

void Context::free(uint64_t address) {
  const auto found = sizes_.find(address);
  if (found == sizes_.end()) return;
  const uint64_t bytes = found->second;
  void* data = reinterpret_cast<void*>(address);
  live_ -= bytes;
  sizes_.erase(found);
  if (const size_t list = spareList(bytes); list < kSpareLists) {
    spares_[list].push_back(data);
  } else if (poison_.empty()) {
    check("cudaFreeAsync", cudaFreeAsync(data, stream_));
  }
}

void* Context::workspace(uint64_t bytes) {
  if (bytes <= workspaceBytes_) return workspace_;
  if (workspace_) check("cudaFreeAsync", cudaFreeAsync(workspace_, stream_));
  workspace_ = nullptr;
  workspaceBytes_ = 0;
  workspace_ = takeOrThrow(bytes);
  workspaceBytes_ = bytes;
  return workspace_;
}

void* Context::take(uint64_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocFromPoolAsync(&data, bytes, pool_, stream_);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check("cudaMallocFromPoolAsync", error);
  return data;
}

void* Context::takeOrThrow(uint64_t bytes) {
  if (void* data = take(bytes)) return data;
  giveBackSpares();
  synchronize();
  if (void* data = take(bytes)) return data;
  size_t free = 0;
  size_t total = 0;
  cudaMemGetInfo(&free, &total);
  throw Failure{"OUT_OF_MEMORY", "", bytes, free + (memory().reserved - live_)};
}

void Context::giveBackSpares() {
  for (std::vector<void*>& list : spares_) {
    for (void* data : list) cudaFreeAsync(data, stream_);
    list.clear();
  }
  if (workspace_) cudaFreeAsync(workspace_, stream_);
  workspace_ = nullptr;
  workspaceBytes_ = 0;
}

void* Context::pointer(const char* name, uint64_t address, uint64_t bytes) const {
  const auto after = sizes_.upper_bound(address);
  const auto block = after == sizes_.begin() ? sizes_.end() : std::prev(after);
  if (block == sizes_.end() || address - block->first > block->second) {
    throw Failure{"ARGUMENT", std::string(name) + " is no live tensor of this backend"};
  }
  if (const uint64_t rest = block->second - (address - block->first); rest < bytes) {
    throw Failure{"ARGUMENT", std::string(name) + " has " + std::to_string(rest) + " bytes and " +
                                  std::to_string(bytes) + " are needed"};
  }
  return reinterpret_cast<void*>(address);
}

void Context::mark() {
  cudaEvent_t event = nullptr;
  check("cudaEventCreate", cudaEventCreate(&event));
  marks_.push_back(event);
  check("cudaEventRecord", cudaEventRecord(event, stream_));
}

std::vector<float> Context::spans() {
  if (marks_.empty()) return {};
  check("cudaEventSynchronize", cudaEventSynchronize(marks_.back()));
  std::vector<float> spans(marks_.size() - 1);
  for (size_t i = 0; i < spans.size(); ++i) {
    check("cudaEventElapsedTime", cudaEventElapsedTime(&spans[i], marks_[i], marks_[i + 1]));
  }
  for (cudaEvent_t mark : marks_) check("cudaEventDestroy", cudaEventDestroy(mark));
  marks_.clear();
  return spans;
}

MemoryUse Context::memory() const {
  uint64_t reserved = 0;
  if (!closed_ && poison_.empty()) cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved);
  return {live_, reserved, sizes_.size()};
}

void Context::write(void* to, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kUploadPiece) {
    const size_t piece = std::min(kUploadPiece, bytes - at);
    if (uploads_.size() >= kUploadsInFlight || (!uploads_.empty() && cudaEventQuery(uploads_.front().done) == cudaSuccess)) {
      Upload done = std::move(uploads_.front());
      uploads_.pop_front();
      const cudaError_t error = cudaEventSynchronize(done.done);
      cudaEventDestroy(done.done);
      keepPinned(std::move(done.buffer));
      check("upload", error);
    }
    Upload upload{takePinned(piece), nullptr};
    std::memcpy(upload.buffer->data(), static_cast<const char*>(from) + at, piece);
    check("cudaEventCreate", cudaEventCreateWithFlags(&upload.done, cudaEventDisableTiming));
    check("upload", cudaMemcpyAsync(static_cast<char*>(to) + at, upload.buffer->data(), piece,
                                    cudaMemcpyHostToDevice, stream_));
    check("cudaEventRecord", cudaEventRecord(upload.done, stream_));
    uploads_.push_back(std::move(upload));
  }
}

void Context::read(void* to, const void* from, size_t bytes) {
  Download download = beginRead(from, bytes);
  const cudaError_t error = awaitRead(download, to);
  endRead(std::move(download));
  check("download", error);
}

Download Context::beginRead(const void* from, size_t bytes) {
  Download download{takePinned(bytes), bytes, nullptr};
  check("cudaEventCreate", cudaEventCreateWithFlags(&download.done, cudaEventDisableTiming));
  check("download", cudaMemcpyAsync(download.buffer->data(), from, bytes, cudaMemcpyDeviceToHost, stream_));
  check("cudaEventRecord", cudaEventRecord(download.done, stream_));
  const std::lock_guard lock(readsMutex_);
  ++reads_;
  return download;
}

cudaError_t Context::awaitRead(const Download& download, void* to) {
  cudaSetDevice(device_);
  const cudaError_t error = cudaEventSynchronize(download.done);
  if (error == cudaSuccess) std::memcpy(to, download.buffer->data(), download.bytes);
  const std::lock_guard lock(readsMutex_);
  --reads_;
  readsDone_.notify_all();
  return error;
}

void Context::endRead(Download download) {
  if (closed_) return;
  cudaEventDestroy(download.done);
  keepPinned(std::move(download.buffer));
}

void Context::synchronize() { check("cudaStreamSynchronize", cudaStreamSynchronize(stream_)); }

std::unique_ptr<PinnedBuffer> Context::takePinned(size_t bytes) {
  const auto fits = [bytes](const auto& buffer) { return buffer->bytes() >= bytes; };
  const auto found = std::find_if(pinned_.begin(), pinned_.end(), fits);
  if (found == pinned_.end()) {
    size_t rounded = 4096;
    while (rounded < bytes) rounded *= 2;
    return std::make_unique<PinnedBuffer>(rounded > kLargestKept ? bytes : rounded);
  }
  std::unique_ptr<PinnedBuffer> buffer = std::move(*found);
  pinned_.erase(found);
  return buffer;
}

// Kept smallest first, so that a small copy does not take a large buffer.
void Context::keepPinned(std::unique_ptr<PinnedBuffer> buffer) {
  if (closed_ || buffer->bytes() > kLargestKept || pinned_.size() >= kKeptBuffers) return;
  const auto larger = [&](const auto& kept) { return kept->bytes() >= buffer->bytes(); };
  pinned_.insert(std::find_if(pinned_.begin(), pinned_.end(), larger), std::move(buffer));
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
