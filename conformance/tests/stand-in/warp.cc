// The lanes of a warp as contexts of one thread, which a scheduler resumes in turn.
#include "conformance/tests/stand-in/warp.h"

#include <ucontext.h>

#include <memory>

#include "conformance/tests/stand-in/order.h"

namespace standin {

namespace {

constexpr size_t kStack = size_t{1} << 18;

struct Lane {
  ucontext_t context;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStack);
  // The number of collective operations that the lane has begun.
  uint32_t turn = 0;
  bool isDone = false;
};

struct Warp {
  ucontext_t scheduler;
  Lane lanes[32];
  // The values that the lanes pass to an operation and to the next one. The first lanes begin the next operation before the last
  // lanes have read the results.
  uint32_t passed[2][32];
  int current = 0;
  const std::function<void()>* body = nullptr;
};

thread_local Warp* warp = nullptr;

void runLane() {
  (*warp->body)();
  warp->lanes[warp->current].isDone = true;
}

// Resumes each lane once. Returns whether all lanes have ended.
bool resumeAll(Warp& of, uint32_t firstThread) {
  uint32_t ended = 0;
  for (of.current = 0; of.current < 32; ++of.current) {
    Lane& lane = of.lanes[of.current];
    threadIdx.x = firstThread + static_cast<uint32_t>(of.current);
    swapcontext(&of.scheduler, &lane.context);
    ended += lane.isDone;
    if (lane.turn != of.lanes[0].turn) fault("lanes of a warp are not together");
  }
  if (ended != 0 && ended != 32) fault("a lane of a warp ended before the others");
  return ended != 0;
}

void runWarp(Warp& of, uint32_t firstThread) {
  for (Lane& lane : of.lanes) {
    getcontext(&lane.context);
    lane.context.uc_stack.ss_sp = lane.stack.get();
    lane.context.uc_stack.ss_size = kStack;
    lane.context.uc_link = &of.scheduler;
    makecontext(&lane.context, runLane, 0);
    lane.turn = 0;
    lane.isDone = false;
  }
  while (!resumeAll(of, firstThread)) {
  }
}

}  // namespace

void launch(uint32_t blocks, uint32_t threads, const std::function<void()>& body) {
  if (threads == 1) {
    threadIdx.x = blockIdx.x = 0;
    return body();
  }
  const auto own = std::make_unique<Warp>();
  own->body = &body;
  warp = own.get();
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (uint32_t first = 0; first < threads; first += 32) runWarp(*own, first);
  }
  warp = nullptr;
}

const uint32_t* exchange(uint32_t value) {
  Warp& of = *warp;
  Lane& lane = of.lanes[of.current];
  uint32_t* passed = of.passed[lane.turn++ % 2];
  passed[of.current] = value;
  swapcontext(&lane.context, &of.scheduler);
  return passed;
}

}  // namespace standin
