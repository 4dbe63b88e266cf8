// Copies between a GPU and the host.
#include <algorithm>
#include <cstring>

#include "native/core/context.h"

namespace lockstep {

namespace {

constexpr size_t kUploadsInFlight = 4;
// Pending reads may use at most this many bytes of pinned memory. A read beyond the limit first copies the tensor to
// other device memory (its snapshot), and later from there to the host.
constexpr size_t kReadsPinned = size_t{64} << 20;
}  // namespace

PendingRead::PendingRead(Context& context) : context_(&context) {
  const std::lock_guard lock(context.readsMutex_);
  ++context.reads_;
}

PendingRead::~PendingRead() {
  if (!context_) return;
  const std::lock_guard lock(context_->readsMutex_);
  --context_->reads_;
  context_->readsDone_.notify_all();
}

void Context::write(void* to, const void* from, size_t bytes) {
  if (capture_) {
    auto buffer = std::make_unique<PinnedBuffer>(bytes);
    std::memcpy(buffer->data(), from, bytes);
    check("upload", cudaMemcpyAsync(to, buffer->data(), bytes, cudaMemcpyHostToDevice, stream()));
    capture_->uploads.push_back(std::move(buffer));
    return;
  }
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t piece = std::min(kPiece, bytes - at);
    if (uploads_.size() >= kUploadsInFlight || (!uploads_.empty() && uploads_.front().done.isDone())) {
      Upload done = std::move(uploads_.front());
      uploads_.pop_front();
      const cudaError_t error = done.done.wait();
      pinned_.keep(std::move(done.buffer));
      check("upload", error);
    }
    Upload upload{pinned_.take(piece), {}};
    std::memcpy(upload.buffer->data(), static_cast<const char*>(from) + at, piece);
    check("upload",
          cudaMemcpyAsync(static_cast<char*>(to) + at, upload.buffer->data(), piece, cudaMemcpyHostToDevice, stream()));
    check("cudaEventRecord", upload.done.record(stream()));
    uploads_.push_back(std::move(upload));
  }
}

void Context::read(void* to, const void* from, size_t bytes) {
  requireNoCapture("a tensor is read");
  check("download", pinned_.copyOut(to, from, bytes, stream()));
}

Download Context::beginRead(void* to, const void* from, size_t bytes) {
  requireNoCapture("a tensor is read");
  Download download;
  download.bytes = bytes;
  if (bytes == 0) return download;
  if (bytes <= kPiece && readsPinned_ + bytes <= kReadsPinned) {
    download.buffer = pinned_.take(bytes);
    check("download", cudaMemcpyAsync(download.buffer->data(), from, bytes, cudaMemcpyDeviceToHost, stream()));
    check("cudaEventRecord", download.done.record(stream()));
    readsPinned_ += bytes;
  } else if (void* snapshot = take(bytes)) {
    snapshots_.insert(snapshot);
    download.snapshot = snapshot;
    check("download", cudaMemcpyAsync(snapshot, from, bytes, cudaMemcpyDeviceToDevice, stream()));
    check("cudaEventRecord", download.done.record(stream()));
    check("cudaStreamWaitEvent", cudaStreamWaitEvent(copies_, download.done.handle(), 0));
  } else {
    read(to, from, bytes);
    return download;
  }
  download.pending = PendingRead(*this);
  return download;
}

cudaError_t Context::awaitRead(Download& download, void* to) {
  const PendingRead over = std::move(download.pending);
  ignore(cudaSetDevice(device_));
  if (download.snapshot) return pinned_.copyOut(to, download.snapshot, download.bytes, copies_);
  if (!download.buffer) return cudaSuccess;
  const cudaError_t error = download.done.wait();
  ignore(error);
  if (error == cudaSuccess) std::memcpy(to, download.buffer->data(), download.bytes);
  return error;
}

Context::HostBlock Context::takeHostBlock(uint64_t bytes) {
  const auto block = freeHostBlocks_.lower_bound(bytes);
  if (block != freeHostBlocks_.end() && block->first / 2 <= bytes) {
    HostBlock taken = std::move(block->second);
    freeHostBlocks_.erase(block);
    return taken;
  }
  HostBlock made;
  try {
    made.buffer = std::make_unique<PinnedBuffer>(bytes);
  } catch (const Failure&) {
    if (freeHostBlocks_.empty()) throw;
    // all free blocks are smaller, or more than twice as large
    for (const auto& [_, free] : freeHostBlocks_) check("copy", free.copied.wait());
    freeHostBlocks_.clear();
    made.buffer = std::make_unique<PinnedBuffer>(bytes);
  }
  return made;
}

uint64_t Context::copyToHost(const void* from, uint64_t bytes) {
  requireNoCapture("memory is copied to the host");
  HostBlock block = takeHostBlock(bytes);
  block.bytes = bytes;
  if (block.copied.handle()) check("cudaStreamWaitEvent", cudaStreamWaitEvent(stream(), block.copied.handle(), 0));
  check("copy to the host", cudaMemcpyAsync(block.buffer->data(), from, bytes, cudaMemcpyDeviceToHost, stream()));
  check("cudaEventRecord", block.copied.record(stream()));
  hostCopies_.emplace(++hostCopiesMade_, std::move(block));
  return hostCopiesMade_;
}

uint64_t Context::hostBytes(uint64_t copy) const {
  const auto block = hostCopies_.find(copy);
  if (block == hostCopies_.end()) throw Failure{"ARGUMENT", "copy is no copy on the host"};
  return block->second.bytes;
}

void Context::restoreFromHost(uint64_t copy, void* to) {
  requireNoCapture("memory is copied back from the host");
  HostBlock& block = hostCopies_.at(copy);
  check("cudaStreamWaitEvent", cudaStreamWaitEvent(stream(), block.copied.handle(), 0));
  check("copy from the host", cudaMemcpyAsync(to, block.buffer->data(), block.bytes, cudaMemcpyHostToDevice, stream()));
  check("cudaEventRecord", block.copied.record(stream()));
}

void Context::freeHost(uint64_t copy) {
  auto freed = hostCopies_.extract(copy);
  if (!freed) return;
  const uint64_t size = freed.mapped().buffer->bytes();
  freeHostBlocks_.emplace(size, std::move(freed.mapped()));
}

void Context::endRead(Download download) {
  if (download.buffer) {
    readsPinned_ -= download.bytes;
    if (!closed_) pinned_.keep(std::move(download.buffer));
  }
  if (download.snapshot && snapshots_.erase(download.snapshot) > 0) {
    ignore(cudaFreeAsync(download.snapshot, stream()));
  }
}

}  // namespace lockstep
