// Host memory that the GPU copies from and to.
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

// A moment of a stream.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  cudaError_t record(cudaStream_t stream);
  cudaError_t wait() const { return cudaEventSynchronize(event_); }
  bool isDone() const;
  cudaEvent_t handle() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Copies larger than this go in pieces of it, so that copying into pinned memory and from it overlap.
inline constexpr size_t kPiece = size_t{8} << 20;

// Buffers kept for reuse, for any thread. None is larger than a piece.
class PinnedBuffers {
 public:
  // Of `bytes` bytes at least, at most a piece. Throws Failure OUT_OF_MEMORY.
  std::unique_ptr<PinnedBuffer> take(size_t bytes);
  void keep(std::unique_ptr<PinnedBuffer> buffer);
  void clear();

  // Copies out what lies at `from` once the stream comes to it, and waits: piece by piece, of which a few are on their
  // way at a time. On any thread. Throws Failure OUT_OF_MEMORY.
  cudaError_t copyOut(void* to, const void* from, size_t bytes, cudaStream_t stream);

 private:
  std::mutex mutex_;
  // Smallest first, so that a small copy does not take a large buffer.
  std::vector<std::unique_ptr<PinnedBuffer>> kept_;
};

}  // namespace lockstep
