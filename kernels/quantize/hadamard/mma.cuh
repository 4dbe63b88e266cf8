// The transform of hadamard.cuh on Hopper's BF16 tensor cores, whose arithmetic defines it. All 32 lanes of the warp
// must call these functions.
#pragma once

#include <cstdint>

#include "kernels/device/pair.cuh"

namespace lockstep {

// Whether the target architecture has the tensor-core step that defines the transform.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
constexpr bool kHadamardByMma = true;
#else
constexpr bool kHadamardByMma = false;
#endif

// A lane's f32 outputs of one step: two columns of output row lane / 4 (low), and of row lane / 4 + 8 (high).
struct HadamardStep {
  float low[2];
  float high[2];
};

// The left operand (A) of the step: the transpose of diag(signs) · H16 / 4, one row per output.
class HadamardMatrix {
 public:
  // Builds this lane's fragment. In the right operand (B), the lane holds values k, k + 1, k + second and k + second +
  // 1 of its column, where k = lane % 4 * step. The fragment of A uses the same k.
  __device__ HadamardMatrix(uint32_t signs, int step, int second) {
    const int row = threadIdx.x % 32 / 4;
    const int first = threadIdx.x % 4 * step;
    operand_[0] = pair(row, first, signs);
    operand_[1] = pair(row + 8, first, signs);
    operand_[2] = pair(row, first + second, signs);
    operand_[3] = pair(row + 8, first + second, signs);
  }

  // Returns the outputs. `first` and `second` are the lane's four values of its column of B, which is column lane / 4
  // of eight.
  __device__ HadamardStep step(uint32_t first, uint32_t second) const {
    HadamardStep y;
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=f"(y.low[0]), "=f"(y.low[1]), "=f"(y.high[0]), "=f"(y.high[1])
        : "r"(operand_[0]), "r"(operand_[1]), "r"(operand_[2]), "r"(operand_[3]), "r"(first), "r"(second), "f"(0.0f));
    return y;
  }

  // Transforms the columns of two matrices of 16x8 values in shared memory. `from` is the address of row lane % 16 of
  // matrix lane / 16, and `to` is where the transformed row is written.
  __device__ void transform(const void* from, void* to) const {
    uint32_t x[4];
    loadDown(from, x);
    const HadamardStep first = step(x[0], x[1]);
    const HadamardStep second = step(x[2], x[3]);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(to))),
                 "r"(bf16Pair(first.low[0], first.low[1])), "r"(bf16Pair(first.high[0], first.high[1])),
                 "r"(bf16Pair(second.low[0], second.low[1])), "r"(bf16Pair(second.high[0], second.high[1]))
                 : "memory");
  }

 private:
  // Elements `column` and `column` + 1 of row `row` of the left operand, each 1/4 or -1/4.
  __device__ static uint32_t pair(int row, int column, uint32_t signs) {
    const auto minus = [&](int value) { return (__popc(row & value) ^ (signs >> value)) & 1; };
    return 0x3e803e80u | minus(column) << 15 | minus(column + 1) << 31;
  }

  uint32_t operand_[4];
};

}  // namespace lockstep
