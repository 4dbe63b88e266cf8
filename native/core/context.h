// One open GPU: its stream, its memory and its error state. All contexts of one device share a CUDA context. A kernel that
// fails breaks every CUDA context of the process, including those created afterwards and those of other devices (measured on an
// H200: error 719 from all of them). Only another process is unaffected.
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

// Counts one asynchronous read for Context::close, which waits until it is finished or abandoned.
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

// An enqueued copy from device to host: through a pinned buffer, or, if it is larger than a piece, from a snapshot on the
// device. If it has neither, the data has already arrived.
struct Download {
  std::unique_ptr<PinnedBuffer> buffer;
  void* snapshot = nullptr;
  size_t bytes = 0;
  Event done;
  PendingRead pending;
};

// The address and the size of an operation's workspace.
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

// A captured CUDA graph and the memory that it owns: its workspace, smaller workspaces that it outgrew, and copies of host data
// that it writes.
struct CapturedGraph {
  cudaGraphExec_t work = nullptr;
  Workspace workspace;
  std::vector<void*> outgrown;
  std::vector<std::unique_ptr<PinnedBuffer>> uploads;
};

class Context {
 public:
  // Throws Failure if the device is not available.
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
  // The plans of gemm/plan.h, created at the first call.
  GemmPlans& gemmPlans();

  // Allocates at least `bytes` bytes, aligned to 256, stream-ordered after the work enqueued so far. Throws Failure
  // OUT_OF_MEMORY.
  uint64_t allocate(uint64_t bytes);
  // Frees memory once the work enqueued so far is done. Ignores addresses that are not allocations.
  void free(uint64_t address);
  // Memory that one operation may use until the next operation starts. It is not counted as live memory. Throws Failure
  // OUT_OF_MEMORY.
  Workspace workspace(uint64_t bytes);
  // Throws Failure BACKEND if an operation wrote beyond its workspace. This is detected only if LOCKSTEP_FENCES is set in the
  // environment.
  void checkWorkspace();
  // Checks that `bytes` bytes at `address` lie inside one allocation. Throws Failure ARGUMENT otherwise.
  void* range(const char* name, uint64_t address, uint64_t bytes) const;
  // As `range`, and checks the alignment that kernels need: 16 bytes, or for smaller sizes the widest access that fits.
  void* pointer(const char* name, uint64_t address, uint64_t bytes) const;
  MemoryUse memory() const;
  // Returns cached memory to the device, once the work enqueued so far is done.
  void trim();

  // Copies from the host through pinned memory; `from` may be changed after the call.
  void write(void* to, const void* from, size_t bytes);
  // Copies to the host and waits.
  void read(void* to, const void* from, size_t bytes);
  // Enqueues a copy to `to`, which must stay valid until endRead.
  Download beginRead(void* to, const void* from, size_t bytes);
  // Waits until the copy has arrived. May be called on any thread, once per beginRead. close() waits for pending reads. Throws
  // Failure OUT_OF_MEMORY if no host memory can be pinned.
  cudaError_t awaitRead(Download& download, void* to);
  void endRead(Download download);
  void synchronize();

  // Captures the work enqueued until endCapture or abortCapture into a CUDA graph. In between, functions that wait for the
  // device throw Failure ARGUMENT. endCapture returns the number of the graph. Both throw Failure if the capture fails.
  void beginCapture();
  uint64_t endCapture();
  void abortCapture();
  // Launches a graph.
  void launch(uint64_t graph);
  // Destroys a graph once its launches are done.
  void destroy(uint64_t graph);

  // Records an event on the stream.
  void mark();
  // Returns the milliseconds between consecutive marks and forgets the marks; waits for the last one.
  std::vector<float> spans();

  // Throws Failure if `error` is an error, and remembers it if it is sticky.
  void check(const char* what, cudaError_t error);
  void check(const char* what, cublasStatus_t status);

 private:
  friend class PendingRead;

  void open();
  // Allocates from the pool; null if there is no memory.
  void* take(uint64_t bytes);
  // As `take`, but if that fails, makes all contexts of the device release their caches and tries again. Throws Failure
  // OUT_OF_MEMORY.
  void* takeOrThrow(uint64_t bytes);
  void giveBackSpares();
  // Throws Failure ARGUMENT during a capture.
  void requireNoCapture(const char* what) const;
  // Ends the capture. `work` becomes the graph, or null if the capture failed; the stream can be used as before.
  cudaError_t stopCapture(cudaGraph_t* work);
  void release(CapturedGraph graph);
  // Makes every context of this process return its cached memory to the device.
  void trimAll();
  [[noreturn]] void fail(const char* what, cudaError_t error);

  struct Upload {
    std::unique_ptr<PinnedBuffer> buffer;
    Event done;
  };

  // Freed blocks of 2^8 to 2^20 bytes are kept for reuse.
  static constexpr int kSmallestShift = 8;
  static constexpr int kLargestShift = 20;
  // The index of the free list for allocations of `bytes` bytes; kSpareLists if they are too large for one.
  static size_t spareList(uint64_t bytes);
  static constexpr size_t kSpareLists = kLargestShift - kSmallestShift + 1;

  int device_;
  bool closed_ = false;
  std::string poison_;
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr;
  // The stream on which snapshots are copied to the host while `stream_` continues.
  cudaStream_t copies_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  cublasLtHandle_t blas_ = nullptr;
  std::shared_ptr<GemmPlans> gemmPlans_;
  // Maps the address of each allocation to its size. Ordered, because an argument may point into an allocation.
  std::map<uint64_t, uint64_t> sizes_;
  uint64_t live_ = 0;
  std::vector<cudaEvent_t> marks_;
  // Free lists by size. All work runs on one stream, so a reused block is ordered after the work that used it before.
  std::array<std::vector<void*>, kSpareLists> spares_;
  Workspace workspace_;
  // The graph being captured, which owns `workspace_` meanwhile, and the workspace to restore afterwards.
  std::optional<CapturedGraph> capture_;
  Workspace workspaceOutside_;
  std::map<uint64_t, CapturedGraph> graphs_;
  uint64_t graphsMade_ = 0;
  // The fence behind the last operation's workspace, until it has been checked.
  uint8_t* fence_ = nullptr;
  // Snapshots of pending reads.
  std::unordered_set<void*> snapshots_;
  size_t readsPinned_ = 0;
  std::deque<Upload> uploads_;
  PinnedBuffers pinned_;
  // The thread that opened the context. Only this thread may use it, except for awaitRead.
  std::thread::id owner_;
  std::mutex readsMutex_;
  std::condition_variable readsDone_;
  int reads_ = 0;
};

}  // namespace lockstep
