// A ring buffer of matrix rows in shared memory, for warp-specialised kernels. The ring consists of slots of a few rows. Producer
// warps fill the slots, sum warps reduce the rows, and result warps compute the results from them. The columns of a row may be
// distributed over the blocks of a cluster; each block then has its own ring.
#pragma once

#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline_primitives.h>

#include "kernels/device/device.cuh"
#include "kernels/device/reduce.cuh"

namespace lockstep {

constexpr int kMaxSlots = 16;
// Maximum number of rows in a ring.
constexpr int kMaxRows = 32;

struct RingShape {
  // The number of columns of a row that one block holds.
  int columns;
  int clusterSize;
  int slots;
  // The number of rows per slot.
  int group;
};

// A warp's position in the ring. Every warp visits all slots in order, and no slot is refilled before all warps have
// visited it. Therefore one parity bit suffices to distinguish a pass through the ring from the next pass.
struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;

  __device__ void next(int slots) {
    if (++slot < slots) return;
    slot = 0;
    parity ^= 1;
  }
};

__device__ inline uint32_t sharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Waits until the phase of an mbarrier with this parity completes. Afterwards, the writes of the threads of this block
// that arrived at the barrier are visible.
__device__ inline void awaitPhase(uint64_t* barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(sharedAddress(barrier)), "r"(parity)
                 : "memory");
#else
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(sharedAddress(barrier)), "r"(parity)
                 : "memory");
#endif
  }
}

// As awaitPhase, for a barrier at which other blocks of the cluster arrive. Acquiring at cluster scope invalidates the
// L1 cache, so it is done only where it is needed. Clusters exist on sm_90 and later; earlier devices never call this.
__device__ inline void awaitPhaseOfCluster(uint64_t* barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(sharedAddress(barrier)), "r"(parity)
        : "memory");
  }
#endif
}

// Makes the mbarriers that this thread initialised visible to the asynchronous copy engine.
__device__ inline void showInitialized() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Starts an asynchronous copy of `bytes` bytes, a multiple of 16, to shared memory. They count at `barrier`.
__device__ inline void copyBytes(uint64_t* barrier, void* to, const void* from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   sharedAddress(to)),
               "l"(from), "r"(bytes), "r"(sharedAddress(barrier))
               : "memory");
#endif
}

// Starts an asynchronous copy of `bytes` bytes, a multiple of 16, from shared memory: a group of one copy.
__device__ inline void storeBytes(void* to, const void* from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2; cp.async.bulk.commit_group;" ::"l"(to),
               "r"(sharedAddress(from)), "r"(bytes)
               : "memory");
#endif
}

// Waits until at most `pending` of the copies that this thread started are incomplete.
template <int pending>
__device__ inline void awaitStores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

// Waits until the copies that this thread started have read the shared memory.
__device__ inline void awaitStoreReads() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

// Starts the asynchronous copies of `count` rows (at most 32) of `width` elements, a multiple of 16 bytes. All lanes of
// one warp call it and then arrive at the barrier (arriveFetched).
template <typename Storage>
__device__ void fetchLines(uint64_t* barrier, Storage* to, int toPitch, const Storage* from, int64_t fromPitch,
                           int count, int width) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
#if __CUDA_ARCH__ >= 900
  if (lane >= count) return;
  const auto bytes = static_cast<uint32_t>(width * sizeof(Storage));
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(bytes)
               : "memory");
  copyBytes(barrier, to + lane * toPitch, from + lane * fromPitch, bytes);
#else
  constexpr int kElements = sizeof(Bytes16) / sizeof(Storage);
  for (int line = 0; line < count; ++line) {
#pragma unroll 8
    for (int i = lane * kElements; i < width; i += kLanes * kElements) {
      __pipeline_memcpy_async(to + line * toPitch + i, from + line * fromPitch + i, sizeof(Bytes16));
    }
  }
#endif
}

// Arrives at the barrier when this thread's asynchronous copies have completed. Every lane of the producer warp calls
// it.
__device__ inline void arriveFetched(uint64_t* barrier) {
  __pipeline_arrive_on(barrier);
  __mbarrier_arrive(barrier);
}

// Arrives at a barrier and adds `bytes` to the number of bytes that its phase waits for. Clusters exist on sm_90 and
// later; earlier devices never call this.
__device__ inline void arriveExpecting(uint64_t* barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(bytes)
               : "memory");
#endif
}

// Writes two values to the memory at `to` of another block of the cluster, and signals `barrier` of that block.
__device__ inline void sendPair(int block, float2* to, uint64_t* barrier, float2 pair) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .u32 t, b; mapa.shared::cluster.u32 t, %0, %2; mapa.shared::cluster.u32 b, %1, %2;"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [t], {%3, %4}, [b];}" ::"r"(sharedAddress(to)),
      "r"(sharedAddress(barrier)), "r"(block), "f"(pair.x), "f"(pair.y)
      : "memory");
#endif
}

__device__ inline void syncCluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}

}  // namespace lockstep
