// A Context is one open GPU: its stream, its memory and its error state. All Context objects of a device use the same
// CUDA context, the primary one. A kernel that fails breaks every CUDA context of the process, also those of other
// devices and those created later (measured on an H200: error 719 from all of them). Other processes are not affected.
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
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "native/core/exported.h"
#include "native/core/failure.h"
#include "native/core/pinned.h"

namespace lockstep {

class Context;

// A pending read: it is counted in the context while this object exists. Context::close waits until there is none.
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

// A copy from the device to the host that was enqueued. If it has a `buffer`, the data arrives in this pinned memory.
// If it has a `snapshot`, the tensor was copied to other device memory first, because it was too large for a pinned
// buffer or too much memory was pinned. If it has neither, the data is already at its destination.
struct Download {
  std::unique_ptr<PinnedBuffer> buffer;
  void* snapshot = nullptr;
  size_t bytes = 0;
  Event done;
  PendingRead pending;
};

// The address and the size in bytes of an operation's workspace.
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

// An object that a context owns and destroys when it closes. Other folders derive their per-context state from it.
class Attachment {
 public:
  virtual ~Attachment() = default;
};

// A captured CUDA graph and the memory that it owns: its workspace, earlier workspaces that were too small, and pinned
// copies of the host data that its launches upload.
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
  // The stream on which work is enqueued: the main stream, or between beginSide and endSide the side stream.
  cudaStream_t stream() const { return lane_->stream; }
  cublasLtHandle_t blas() const { return blas_; }
  const cudaDeviceProp& properties() const { return properties_; }
  // The plans of gemm/plan.h, created at the first call.
  GemmPlans& gemmPlans();
  // The communicators of collective/communicator.h; null until one is opened.
  std::shared_ptr<Attachment>& communicators() { return communicators_; }

  // A counter in device memory for kernels whose blocks share their work (NormParams::tickets). It is 0 between kernels.
  // Each stream has its own, so no two kernels use one at the same time.
  uint32_t* tickets() const { return lane_->tickets; }

  // Allocates at least `bytes` bytes, aligned to 256, stream-ordered after the work enqueued so far. Throws Failure
  // OUT_OF_MEMORY.
  uint64_t allocate(uint64_t bytes);
  // Memory that other processes can map. Between exportFrom and stopExport, allocations of at least `bytes` bytes on the side
  // stream come from it, while the device has memory for it. All callers pass the same number.
  ExportedMemory& exported() { return exported_; }
  void exportFrom(uint64_t bytes);
  // Call it once for each exportFrom, after all other processes have unmapped the memory.
  void stopExport();
  // Frees memory after the work enqueued so far. Does nothing if `address` is not an allocation.
  void free(uint64_t address);
  // Memory that one operation may use until the next operation starts. It is not counted as live memory. Throws Failure
  // OUT_OF_MEMORY.
  Workspace workspace(uint64_t bytes);
  // Throws Failure BACKEND if an operation wrote beyond its workspace. This is detected only if LOCKSTEP_FENCES is set in the
  // environment.
  void checkWorkspace();
  // Checks that `bytes` bytes at `address` lie inside one allocation. Throws Failure ARGUMENT otherwise.
  void* range(const char* name, uint64_t address, uint64_t bytes);
  // As `range`, and throws Failure ARGUMENT as well if `address` is not aligned to 16 bytes or, for fewer bytes, to the
  // largest power of two that is not above `bytes`.
  void* pointer(const char* name, uint64_t address, uint64_t bytes);
  MemoryUse memory() const;
  // Waits for the work enqueued so far, then releases the cached device memory, except memory that other processes may have
  // mapped, and the cached pinned host memory. Throws Failure ARGUMENT during a capture.
  void trim();

  // Enqueues a copy from the host, through pinned memory. The caller may change the data at `from` when the call
  // returns.
  void write(void* to, const void* from, size_t bytes);
  // Copies to the host and waits for the copy.
  void read(void* to, const void* from, size_t bytes);
  // Enqueues a copy to the host. `to` must stay valid until endRead.
  Download beginRead(void* to, const void* from, size_t bytes);
  // Waits until the data has arrived at `to`. It may be called on any thread, once for each beginRead. close() waits
  // for pending reads. Throws Failure OUT_OF_MEMORY if no host memory can be pinned.
  cudaError_t awaitRead(Download& download, void* to);
  void endRead(Download download);
  void synchronize();

  // Enqueues a copy to pinned host memory and returns the number of the copy, which exists until freeHost. Throws Failure
  // OUT_OF_MEMORY if no more host memory can be pinned, ARGUMENT during a capture.
  uint64_t copyToHost(const void* from, uint64_t bytes);
  // The size of a copy in bytes. Throws Failure ARGUMENT if there is no such copy.
  uint64_t hostBytes(uint64_t copy) const;
  // Enqueues a copy back to the device. Throws Failure ARGUMENT during a capture.
  void restoreFromHost(uint64_t copy, void* to);
  // Frees a copy after the work enqueued for it. The pinned memory is kept for later copies.
  void freeHost(uint64_t copy);

  // beginCapture starts the capture of enqueued work into a CUDA graph. endCapture ends it and returns the number of
  // the graph; abortCapture discards the work. During a capture, functions that wait for the device throw Failure
  // ARGUMENT. beginCapture and endCapture throw Failure if the capture fails.
  void beginCapture();
  uint64_t endCapture();
  void abortCapture();
  // Launches a graph.
  void launch(uint64_t graph);
  // Waits for the work enqueued so far and destroys a graph.
  void destroy(uint64_t graph);

  // Throws Failure ARGUMENT during a capture.
  void requireNoCapture(const char* what) const;

  // Between beginSide and endSide, work is enqueued on a second stream, the side stream. It starts after the work that is on the
  // main stream at beginSide, and may run concurrently with later work on the main stream. Before the main stream next uses or
  // frees a block of memory that side work uses, it waits for that work. Both throw Failure ARGUMENT during a capture.
  void beginSide();
  void endSide();
  bool isAside() const { return lane_ == &side_; }

  // Records an event on the stream, for `spans` and `waits`.
  void mark();
  // Waits for the last event that `mark` recorded. Returns the milliseconds between consecutive events and destroys them.
  std::vector<float> spans();
  // For each beginSide since the first event that `mark` recorded: the milliseconds that the main stream has waited for its side
  // work. `spans` resets this.
  std::vector<float> waits();

  // Throws Failure if `error` is an error. After a sticky error the context can no longer be used.
  void check(const char* what, cudaError_t error);
  void check(const char* what, cublasStatus_t status);

 private:
  friend class PendingRead;

  void open();
  // Allocates from the memory pool. Returns null if there is no memory.
  void* take(uint64_t bytes);
  // As `take`, after trimAll, which is not called during a capture. Throws Failure OUT_OF_MEMORY.
  void* takeTrimmed(uint64_t bytes);
  // Returns a block from a free list, from the pool, or else from exported memory. Throws Failure OUT_OF_MEMORY.
  void* takeBlock(uint64_t bytes);
  // Returns free exported memory that the current stream may use at once, or null if there is none.
  void* takeExported(uint64_t bytes);
  // Ends the capture. `work` becomes the graph, or null if the capture failed. Afterwards the stream executes work
  // again.
  cudaError_t stopCapture(cudaGraph_t* work);
  void release(CapturedGraph graph);
  // Waits for the device, and returns the free memory of the pools of all contexts of this device. Contexts that this
  // thread opened release their free lists and workspaces first.
  void trimAll();
  [[noreturn]] void fail(const char* what, cudaError_t error);

  // The work between one beginSide and its endSide. The entry is kept until the main stream has waited for the work.
  struct SideWork {
    Event done;
    // The addresses of the blocks that the work uses.
    std::unordered_set<uint64_t> blocks;
    // The index of the work, counted from the first mark.
    std::optional<size_t> number;
  };

  // A wait of the main stream for side work that has a number.
  struct Wait {
    size_t work;
    Event begin;
    Event end;
  };

  // Throws Failure ARGUMENT between beginSide and endSide.
  void requireNotAside(const char* what) const;
  // Records that work on the current stream uses a block. If side work uses the block too, the main stream waits for
  // that work.
  void use(uint64_t block);
  // As `use`, for the work that frees the block.
  void release(uint64_t block);
  // Makes the main stream wait for the side work number `work` and for all earlier side work.
  void join(size_t work);
  // Removes the first `count` side works, which have completed or which the main stream waits for.
  void forget(size_t count);
  void joinAll();
  // Records an event with a timestamp.
  Event stamp();
  // Waits for both events. Returns the milliseconds from one to the other.
  float between(const Event& first, const Event& second);
  void forgetStamps();
  // The block of memory that `address` lies in, or sizes_.end().
  std::map<uint64_t, uint64_t>::const_iterator blockAt(uint64_t address) const;

  // Pinned memory that holds a block of device memory.
  struct HostBlock {
    std::unique_ptr<PinnedBuffer> buffer;
    uint64_t bytes = 0;
    // The last copy from or to the memory.
    Event copied;
  };
  // Returns free pinned memory of at least `bytes` bytes and at most twice as many, or else new memory.
  HostBlock takeHostBlock(uint64_t bytes);

  struct Upload {
    std::unique_ptr<PinnedBuffer> buffer;
    Event done;
  };

  // Freed blocks are kept in free lists, one for each power of two from 2^8 to 2^20 bytes.
  static constexpr int kSmallestShift = 8;
  static constexpr int kLargestShift = 20;
  // Returns the index of the free list for allocations of `bytes` bytes, or kSpareLists if they are too large for a
  // free list.
  static size_t spareList(uint64_t bytes);
  static constexpr size_t kSpareLists = kLargestShift - kSmallestShift + 1;

  // A stream, and memory that only work on this stream reuses.
  struct Lane {
    cudaStream_t stream = nullptr;
    // The free lists. Work on a reused block starts after the earlier work on it, which is on the same stream.
    std::array<std::vector<void*>, kSpareLists> spares;
    Workspace workspace;
    // The fence after the workspace of the last operation; null if it has been checked.
    uint8_t* fence = nullptr;
    uint32_t* tickets = nullptr;
  };
  void openTickets(Lane& lane);
  // Releases the cached memory of a lane.
  void giveBack(Lane& lane);
  // Takes a block from a free list, or null if there is none.
  void* takeSpare(size_t list);

  int device_;
  bool closed_ = false;
  std::string poison_;
  cudaDeviceProp properties_{};
  Lane main_;
  // The side stream is created by the first beginSide.
  Lane side_;
  Lane* lane_ = &main_;
  std::deque<SideWork> sideWork_;
  // Makes the side stream wait for the main stream.
  Event fork_;
  // The stream that copies snapshots to the host while the others continue.
  cudaStream_t copies_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  ExportedMemory exported_;
  uint64_t exportedFrom_ = UINT64_MAX;
  int exporters_ = 0;
  cublasLtHandle_t blas_ = nullptr;
  std::shared_ptr<GemmPlans> gemmPlans_;
  std::shared_ptr<Attachment> communicators_;
  // The size of each allocation by its address. The map is ordered, because an argument may point into an allocation.
  std::map<uint64_t, uint64_t> sizes_;
  // The entries of sizes_ by address. Most arguments begin where an allocation does, and a hash table is faster than a tree.
  std::unordered_map<uint64_t, std::map<uint64_t, uint64_t>::const_iterator> blocks_;
  uint64_t live_ = 0;
  std::vector<Event> marks_;
  // The number of uses of the side stream since the first mark, and the waits for that work.
  size_t numbered_ = 0;
  std::vector<Wait> waits_;
  // The graph being captured. The main workspace belongs to it during the capture, and `workspaceOutside_` is restored
  // afterwards.
  std::optional<CapturedGraph> capture_;
  Workspace workspaceOutside_;
  std::map<uint64_t, CapturedGraph> graphs_;
  uint64_t graphsMade_ = 0;
  // The snapshots of pending reads (Download).
  std::unordered_set<void*> snapshots_;
  size_t readsPinned_ = 0;
  std::deque<Upload> uploads_;
  PinnedBuffers pinned_;
  std::map<uint64_t, HostBlock> hostCopies_;
  uint64_t hostCopiesMade_ = 0;
  // Free pinned memory by its size. The last copy of a block may not have ended.
  std::multimap<uint64_t, HostBlock> freeHostBlocks_;
  // The thread that opened the context. Only this thread may use it, except for awaitRead.
  std::thread::id owner_;
  std::mutex readsMutex_;
  std::condition_variable readsDone_;
  int reads_ = 0;
};

}  // namespace lockstep
