// One opened GPU: its stream, its memory and its failures. The backends of one device share a CUDA context, and a kernel that
// fails breaks every CUDA context of the process, those made afterwards and those of other devices' backends included
// (measured on an H200: error 719 from all of them); only another process is unaffected.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep {

// An error that JavaScript sees: `code` is one of src/errors.ts's, further fields are for that code.
struct Failure {
  std::string code;
  std::string message;
  uint64_t wanted = 0;
  uint64_t free = 0;
};

// Host memory that the GPU copies from and to, kept for reuse.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// A copy out that was enqueued.
struct Download {
  std::unique_ptr<PinnedBuffer> buffer;
  size_t bytes;
  cudaEvent_t done;
};

struct MemoryUse {
  uint64_t live;
  uint64_t reserved;
  uint64_t blocks;
};

class GemmPlans;

class Context {
 public:
  // Throws Failure where the device is not to be had.
  explicit Context(int device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Makes the device current on this thread. Throws Failure after close() and after a sticky error.
  void enter();
  void close();
  bool closed() const { return closed_; }

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  cublasLtHandle_t blas() const { return blas_; }
  const cudaDeviceProp& properties() const { return properties_; }
  // What gemm-plan.h prepares, made at the first call.
  GemmPlans& gemmPlans();

  // At least `bytes` bytes, aligned to 256, ordered after the work enqueued so far. Throws Failure OUT_OF_MEMORY.
  uint64_t allocate(uint64_t bytes);
  // Returns memory once the work enqueued so far is done. Does nothing for what is no allocation.
  void free(uint64_t address);
  // Memory for one operation to use until the next one does. Not counted as live. Throws Failure OUT_OF_MEMORY.
  void* workspace(uint64_t bytes);
  // The allocation at `address`, which must have room for `bytes`. Throws Failure ARGUMENT.
  void* pointer(const char* name, uint64_t address, uint64_t bytes) const;
  MemoryUse memory() const;

  // Copies in, through pinned memory; `from` may change afterwards.
  void write(void* to, const void* from, size_t bytes);
  // Copies out and waits.
  void read(void* to, const void* from, size_t bytes);
  // Enqueues a copy out.
  Download beginRead(const void* from, size_t bytes);
  // Waits for it and copies on to `to`; on any thread, once for each beginRead. close() waits for those that were begun.
  cudaError_t awaitRead(const Download& download, void* to);
  void endRead(Download download);
  void synchronize();

  // Marks this moment of the stream.
  void mark();
  // Milliseconds from each mark to the next, which are forgotten; waits for the last.
  std::vector<float> spans();

  // Throws Failure where `error` is one, and remembers it where nothing will work after it.
  void check(const char* what, cudaError_t error);
  void check(const char* what, cublasStatus_t status);

 private:
  // Memory of the pool; null where there is no more.
  void* take(uint64_t bytes);
  // As `take`, if need be after giving back what is kept for reuse. Throws Failure OUT_OF_MEMORY.
  void* takeOrThrow(uint64_t bytes);
  void giveBackSpares();
  std::unique_ptr<PinnedBuffer> takePinned(size_t bytes);
  void keepPinned(std::unique_ptr<PinnedBuffer> buffer);
  [[noreturn]] void fail(const char* what, cudaError_t error);

  struct Upload {
    std::unique_ptr<PinnedBuffer> buffer;
    cudaEvent_t done;
  };

  // Sizes of 2^8 to 2^20 bytes are kept for reuse when they are freed.
  static constexpr int kSmallestShift = 8;
  static constexpr int kLargestShift = 20;
  // The list that allocations of so many bytes come from and return to; kSpareLists for larger ones.
  static size_t spareList(uint64_t bytes);
  static constexpr size_t kSpareLists = kLargestShift - kSmallestShift + 1;

  int device_;
  bool closed_ = false;
  std::string poison_;
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  cublasLtHandle_t blas_ = nullptr;
  std::shared_ptr<GemmPlans> gemmPlans_;
  // Ordered, because an argument may point into the middle of a block.
  std::map<uint64_t, uint64_t> sizes_;
  uint64_t live_ = 0;
  std::vector<cudaEvent_t> marks_;
  // All work is on one stream, so what takes a block from here comes after whatever used it before.
  std::array<std::vector<void*>, kSpareLists> spares_;
  void* workspace_ = nullptr;
  uint64_t workspaceBytes_ = 0;
  std::deque<Upload> uploads_;
  std::vector<std::unique_ptr<PinnedBuffer>> pinned_;
  std::mutex readsMutex_;
  std::condition_variable readsDone_;
  int reads_ = 0;
};

}  // namespace lockstep
