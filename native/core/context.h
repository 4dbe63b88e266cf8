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
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "native/core/failure.h"
#include "native/core/pinned.h"

namespace lockstep {

class Context;

// One of the reads that Context::close waits for, until it is over or given up.
class PendingRead {
 public:
  PendingRead() = default;
  explicit PendingRead(Context& context);
  PendingRead(PendingRead&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
  PendingRead& operator=(PendingRead&& other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  ~PendingRead();

 private:
  Context* context_ = nullptr;
};

// A copy out that was enqueued: through pinned memory, or, where it is larger than a piece, from a copy on the device.
// One with neither has arrived.
struct Download {
  std::unique_ptr<PinnedBuffer> buffer;
  void* snapshot = nullptr;
  size_t bytes = 0;
  Event done;
  PendingRead pending;
};

// Memory of one operation, and how much of it there is.
struct Workspace {
  void* data = nullptr;
  uint64_t bytes = 0;
};

struct MemoryUse {
  uint64_t live;
  uint64_t reserved;
  uint64_t blocks;
};

class GemmPlans;

// Work that was captured, and the memory that is its own: a workspace, those it outgrew, and what it writes from the host.
struct CapturedGraph {
  cudaGraphExec_t work = nullptr;
  Workspace workspace;
  std::vector<void*> outgrown;
  std::vector<std::unique_ptr<PinnedBuffer>> uploads;
};

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
  // What gemm/plan.h prepares, made at the first call.
  GemmPlans& gemmPlans();

  // At least `bytes` bytes, aligned to 256, ordered after the work enqueued so far. Throws Failure OUT_OF_MEMORY.
  uint64_t allocate(uint64_t bytes);
  // Returns memory once the work enqueued so far is done. Does nothing for what is no allocation.
  void free(uint64_t address);
  // Memory for one operation to use until the next one does. Not counted as live. Throws Failure OUT_OF_MEMORY.
  Workspace workspace(uint64_t bytes);
  // Throws Failure BACKEND where an operation wrote beyond its workspace, of which only a process with LOCKSTEP_FENCES in its
  // environment knows.
  void checkWorkspace();
  // Memory of `bytes` bytes wholly inside an allocation. Throws Failure ARGUMENT.
  void* range(const char* name, uint64_t address, uint64_t bytes) const;
  // As `range`, for kernels: aligned to 16, or, where it is smaller, to the widest access that it has room for.
  void* pointer(const char* name, uint64_t address, uint64_t bytes) const;
  MemoryUse memory() const;
  // Gives the device what is kept for reuse, once the work enqueued so far is done.
  void trim();

  // Copies in, through pinned memory; `from` may change afterwards.
  void write(void* to, const void* from, size_t bytes);
  // Copies out and waits.
  void read(void* to, const void* from, size_t bytes);
  // Enqueues a copy out to `to`, which stays where it is until endRead.
  Download beginRead(void* to, const void* from, size_t bytes);
  // Waits until it has arrived; on any thread, once for each beginRead. close() waits for those that were begun.
  // Throws Failure OUT_OF_MEMORY where no host memory can be pinned.
  cudaError_t awaitRead(Download& download, void* to);
  void endRead(Download download);
  void synchronize();

  // From here to endCapture or abortCapture what is enqueued is recorded in a graph. What waits for the device throws Failure
  // ARGUMENT meanwhile. Throws Failure, and so does endCapture, which gives the graph's number.
  void beginCapture();
  uint64_t endCapture();
  void abortCapture();
  // Enqueues a graph.
  void launch(uint64_t graph);
  // Once its launches are done.
  void destroy(uint64_t graph);

  // Marks this moment of the stream.
  void mark();
  // Milliseconds from each mark to the next, which are forgotten; waits for the last.
  std::vector<float> spans();

  // Throws Failure where `error` is one, and remembers it where nothing will work after it.
  void check(const char* what, cudaError_t error);
  void check(const char* what, cublasStatus_t status);

 private:
  friend class PendingRead;

  void open();
  // Memory of the pool; null where there is no more.
  void* take(uint64_t bytes);
  // As `take`, if need be after all backends of the device gave back what they keep. Throws Failure OUT_OF_MEMORY.
  void* takeOrThrow(uint64_t bytes);
  void giveBackSpares();
  // Throws Failure ARGUMENT during a capture.
  void requireNoCapture(const char* what) const;
  // The recorded work, or null where the capture failed; the stream works as before.
  cudaError_t stopCapture(cudaGraph_t* work);
  void release(CapturedGraph graph);
  // Has every context of this process give the device what it keeps.
  void trimAll();
  [[noreturn]] void fail(const char* what, cudaError_t error);

  struct Upload {
    std::unique_ptr<PinnedBuffer> buffer;
    Event done;
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
  // Copies snapshots out beside the work of `stream_`.
  cudaStream_t copies_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  cublasLtHandle_t blas_ = nullptr;
  std::shared_ptr<GemmPlans> gemmPlans_;
  // Ordered, because an argument may point into the middle of a block.
  std::map<uint64_t, uint64_t> sizes_;
  uint64_t live_ = 0;
  std::vector<cudaEvent_t> marks_;
  // All work is on one stream, so what takes a block from here comes after whatever used it before.
  std::array<std::vector<void*>, kSpareLists> spares_;
  Workspace workspace_;
  // The one that is being captured, whose workspace is `workspace_` meanwhile, and the one to go on with afterwards.
  std::optional<CapturedGraph> capture_;
  Workspace workspaceOutside_;
  std::map<uint64_t, CapturedGraph> graphs_;
  uint64_t graphsMade_ = 0;
  // Bytes after what the last operation asked for, until they were looked at.
  uint8_t* fence_ = nullptr;
  // Of reads that are not over.
  std::unordered_set<void*> snapshots_;
  size_t readsPinned_ = 0;
  std::deque<Upload> uploads_;
  PinnedBuffers pinned_;
  // The thread that opened it, which alone may use it but for awaitRead.
  std::thread::id owner_;
  std::mutex readsMutex_;
  std::condition_variable readsDone_;
  int reads_ = 0;
};

}  // namespace lockstep
