#include "native/core/pinned.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <utility>

#include "native/core/failure.h"

namespace lockstep {

namespace {

// Minimum size of a buffer.
constexpr size_t kMinBytes = 4096;
// Maximum number of buffers in the cache.
constexpr size_t kMaxKept = 12;
// Maximum number of pieces of one copy that are enqueued at a time.
constexpr size_t kMaxInFlight = 3;

}  // namespace

PinnedBuffer::PinnedBuffer(size_t bytes) : bytes_(bytes) {
  void* data = nullptr;
  if (const cudaError_t error = cudaMallocHost(&data, bytes); error != cudaSuccess) {
    cudaGetLastError();
    throw Failure{"OUT_OF_MEMORY", describe("pinned host memory", error), bytes, 0};
  }
  data_ = static_cast<char*>(data);
}

PinnedBuffer::~PinnedBuffer() { ignore(cudaFreeHost(data_)); }

Event::Event(Event&& other) noexcept : hasTime_(other.hasTime_), event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(hasTime_, other.hasTime_);
  std::swap(event_, other.event_);
  return *this;
}

Event::~Event() {
  if (event_) ignore(cudaEventDestroy(event_));
}

cudaError_t Event::record(cudaStream_t stream) {
  if (!event_) {
    const cudaError_t error = cudaEventCreateWithFlags(&event_, hasTime_ ? cudaEventDefault : cudaEventDisableTiming);
    if (error != cudaSuccess) return error;
  }
  return cudaEventRecord(event_, stream);
}

bool Event::isDone() const {
  const cudaError_t error = cudaEventQuery(event_);
  ignore(error);
  return error == cudaSuccess;
}

std::unique_ptr<PinnedBuffer> PinnedBuffers::take(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [bytes](const auto& buffer) { return buffer->bytes() >= bytes; };
    if (const auto entry = std::find_if(kept_.begin(), kept_.end(), fits); entry != kept_.end()) {
      std::unique_ptr<PinnedBuffer> buffer = std::move(*entry);
      kept_.erase(entry);
      return buffer;
    }
  }
  size_t rounded = kMinBytes;
  while (rounded < bytes) rounded *= 2;
  return std::make_unique<PinnedBuffer>(rounded);
}

void PinnedBuffers::keep(std::unique_ptr<PinnedBuffer> buffer) {
  const std::lock_guard lock(mutex_);
  if (kept_.size() >= kMaxKept) return;
  const auto notSmaller = [&](const auto& kept) { return kept->bytes() >= buffer->bytes(); };
  kept_.insert(std::find_if(kept_.begin(), kept_.end(), notSmaller), std::move(buffer));
}

void PinnedBuffers::clear() {
  const std::lock_guard lock(mutex_);
  kept_.clear();
}

cudaError_t PinnedBuffers::copyOut(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  struct Piece {
    std::unique_ptr<PinnedBuffer> buffer;
    Event done;
    size_t at;
    size_t bytes;
  };
  std::deque<Piece> pieces;
  cudaError_t error = cudaSuccess;
  // After an error no more pieces are enqueued. Those already enqueued are awaited, because they still write to their
  // buffers.
  const auto finishOldest = [&] {
    Piece piece = std::move(pieces.front());
    pieces.pop_front();
    if (const cudaError_t status = piece.done.wait(); status != cudaSuccess) error = status;
    if (error == cudaSuccess) std::memcpy(static_cast<char*>(to) + piece.at, piece.buffer->data(), piece.bytes);
    keep(std::move(piece.buffer));
  };
  // if no more memory can be pinned, the enqueued pieces are awaited as well
  std::exception_ptr failure;
  const auto buffer = [&](size_t size) -> std::unique_ptr<PinnedBuffer> {
    try {
      return take(size);
    } catch (...) {
      failure = std::current_exception();
      return nullptr;
    }
  };
  for (size_t at = 0; at < bytes && error == cudaSuccess; at += kPiece) {
    if (pieces.size() == kMaxInFlight) finishOldest();
    Piece piece{buffer(std::min(kPiece, bytes - at)), {}, at, std::min(kPiece, bytes - at)};
    if (failure) break;
    error = cudaMemcpyAsync(piece.buffer->data(), static_cast<const char*>(from) + at, piece.bytes,
                            cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = piece.done.record(stream);
    if (error == cudaSuccess) pieces.push_back(std::move(piece));
  }
  while (!pieces.empty()) finishOldest();
  if (failure) std::rethrow_exception(failure);
  ignore(error);
  return error;
}

}  // namespace lockstep
