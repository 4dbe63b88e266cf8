// Pinned host memory for copies from and to the GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep {

class PinnedBuffer {
 public:
  // Throws Failure OUT_OF_MEMORY.
  explicit PinnedBuffer(size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_;
};

// A CUDA event. Events without timestamps are faster.
class Event {
 public:
  Event() = default;
  explicit Event(bool hasTime) : hasTime_(hasTime) {}
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  cudaError_t record(cudaStream_t stream);
  cudaError_t wait() const { return cudaEventSynchronize(event_); }
  bool isDone() const;
  cudaEvent_t handle() const { return event_; }

 private:
  bool hasTime_ = false;
  cudaEvent_t event_ = nullptr;
};

// The size of the pieces into which a larger copy is split. The host copies one piece from or to pinned memory while another
// piece is transferred.
inline constexpr size_t kPiece = size_t{8} << 20;

// A thread-safe cache of pinned buffers. No buffer is larger than a piece.
class PinnedBuffers {
 public:
  // Returns a buffer of at least `bytes` bytes, where `bytes` is at most kPiece. Throws Failure OUT_OF_MEMORY.
  std::unique_ptr<PinnedBuffer> take(size_t bytes);
  void keep(std::unique_ptr<PinnedBuffer> buffer);
  void clear();

  // Enqueues a copy from the device on `stream` and waits until the data is at `to`. It copies piece by piece, with a few pieces
  // enqueued at a time. Thread-safe. Throws Failure OUT_OF_MEMORY.
  cudaError_t copyOut(void* to, const void* from, size_t bytes, cudaStream_t stream);

 private:
  std::mutex mutex_;
  // The cached buffers in ascending order of size, so that a small copy does not take a large buffer.
  std::vector<std::unique_ptr<PinnedBuffer>> kept_;
};

}  // namespace lockstep
