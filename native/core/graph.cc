// Captures work into a CUDA graph and launches it repeatedly.
#include "native/core/context.h"

namespace lockstep {

void Context::requireNoCapture(const char* what) const {
  if (!capture_) return;
  throw Failure{"ARGUMENT", std::string(what) +
                                " while a graph is captured, but captured work runs only at replay; "
                                "do that before or after the capture"};
}

void Context::beginCapture() {
  requireNoCapture("another capture begins");
  requireNotAside("a graph is captured");
  checkWorkspace();
  // a captured stream must not wait for work outside of the capture, so that work is awaited here
  joinAll();
  // In relaxed mode, allocations on another stream are possible during the capture and do not become part of it.
  check("cudaStreamBeginCapture", cudaStreamBeginCapture(main_.stream, cudaStreamCaptureModeRelaxed));
  workspaceOutside_ = std::exchange(main_.workspace, {});
  capture_.emplace();
}

uint64_t Context::endCapture() {
  if (!capture_) throw Failure{"ARGUMENT", "no graph is being captured"};
  cudaGraph_t work = nullptr;
  const cudaError_t stopped = stopCapture(&work);
  CapturedGraph graph = std::move(*capture_);
  capture_.reset();
  cudaError_t error = stopped;
  if (error == cudaSuccess) error = cudaGraphInstantiate(&graph.work, work, 0);
  if (work) ignore(cudaGraphDestroy(work));
  if (error != cudaSuccess) {
    release(std::move(graph));
    fail("the work cannot be captured", error);
  }
  graphs_.emplace(++graphsMade_, std::move(graph));
  return graphsMade_;
}

void Context::abortCapture() {
  if (!capture_) return;
  cudaGraph_t work = nullptr;
  ignore(stopCapture(&work));
  if (work) ignore(cudaGraphDestroy(work));
  release(std::move(*capture_));
  capture_.reset();
}

cudaError_t Context::stopCapture(cudaGraph_t* work) {
  const cudaError_t error = cudaStreamEndCapture(main_.stream, work);
  cudaGetLastError();
  capture_->workspace = std::exchange(main_.workspace, std::exchange(workspaceOutside_, {}));
  return error;
}

void Context::launch(uint64_t graph) {
  requireNoCapture("a graph is replayed");
  requireNotAside("a graph is replayed");
  const auto entry = graphs_.find(graph);
  if (entry == graphs_.end()) throw Failure{"ARGUMENT", "the graph has been destroyed"};
  // it is unknown which memory the graph uses, so all side work is awaited
  joinAll();
  check("cudaGraphLaunch", cudaGraphLaunch(entry->second.work, main_.stream));
}

void Context::destroy(uint64_t graph) {
  const auto entry = graphs_.find(graph);
  if (entry == graphs_.end()) return;
  requireNoCapture("a graph is disposed of");
  if (poison_.empty()) check("cudaStreamSynchronize", cudaStreamSynchronize(main_.stream));
  release(std::move(entry->second));
  graphs_.erase(entry);
}

void Context::release(CapturedGraph graph) {
  if (graph.work) ignore(cudaGraphExecDestroy(graph.work));
  for (void* data : graph.outgrown) ignore(cudaFreeAsync(data, main_.stream));
  if (graph.workspace.data) ignore(cudaFreeAsync(graph.workspace.data, main_.stream));
}

}  // namespace lockstep
