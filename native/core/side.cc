// The side stream of a context: its work runs concurrently with the main stream. Events order the two streams where they use the
// same memory.
#include "native/core/context.h"

namespace lockstep {

void Context::requireNotAside(const char* what) const {
  if (!isAside()) return;
  throw Failure{"ARGUMENT",
                std::string(what) + " on the side stream, which runs single operations; do that outside of it"};
}

void Context::beginSide() {
  requireNoCapture("the side stream is used");
  requireNotAside("another side stream is used");
  if (!side_.stream) {
    // The side stream has the highest priority: its work consists of short exchanges that other ranks wait for.
    int lowestPriority = 0;
    int highestPriority = 0;
    check("cudaDeviceGetStreamPriorityRange", cudaDeviceGetStreamPriorityRange(&lowestPriority, &highestPriority));
    check("cudaStreamCreate", cudaStreamCreateWithPriority(&side_.stream, cudaStreamNonBlocking, highestPriority));
    openTickets(side_);
  }
  while (!sideWork_.empty() && sideWork_.front().done.isDone()) forget(1);
  check("cudaEventRecord", fork_.record(main_.stream));
  check("cudaStreamWaitEvent", cudaStreamWaitEvent(side_.stream, fork_.handle(), 0));
  sideWork_.emplace_back();
  if (!marks_.empty()) sideWork_.back().number = numbered_++;
  lane_ = &side_;
}

void Context::endSide() {
  if (!isAside()) throw Failure{"ARGUMENT", "the side stream is not in use"};
  lane_ = &main_;
  check("cudaEventRecord", sideWork_.back().done.record(side_.stream));
}

void Context::use(uint64_t block) {
  if (sideWork_.empty() || !poison_.empty()) return;
  if (isAside()) {
    sideWork_.back().blocks.insert(block);
    return;
  }
  for (size_t i = sideWork_.size(); i-- > 0;) {
    if (sideWork_[i].blocks.contains(block)) return join(i);
  }
}

void Context::release(uint64_t block) {
  if (!isAside()) return use(block);
  for (SideWork& work : sideWork_) work.blocks.erase(block);
}

void Context::join(size_t work) {
  const std::optional<size_t> number = sideWork_[work].number;
  Event begin;
  if (number) begin = stamp();
  check("cudaStreamWaitEvent", cudaStreamWaitEvent(main_.stream, sideWork_[work].done.handle(), 0));
  if (number) waits_.push_back({*number, std::move(begin), stamp()});
  forget(work + 1);
}

void Context::forget(size_t count) {
  sideWork_.erase(sideWork_.begin(), sideWork_.begin() + static_cast<std::ptrdiff_t>(count));
  if (!sideWork_.empty()) return;
  for (size_t list = 0; list < kSpareLists; ++list) {
    main_.spares[list].insert(main_.spares[list].end(), side_.spares[list].begin(), side_.spares[list].end());
    side_.spares[list].clear();
  }
}

void Context::joinAll() {
  if (!isAside() && !sideWork_.empty()) join(sideWork_.size() - 1);
}

}  // namespace lockstep
