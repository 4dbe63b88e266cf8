// Copies of boxes of a tensor to shared memory by Hopper's tensor copy engine.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/device/ring.cuh"

namespace lockstep {

// Copies the box at (column, head, row, batch) to shared memory; its bytes count at `barrier`. Elements outside of the tensor
// are zero.
__device__ inline void copyBox(const CUtensorMap* map, uint64_t* barrier, uint32_t to, int column, int head, int row,
                               int batch) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(sharedAddress(barrier)), "r"(column), "r"(head), "r"(row), "r"(batch)
      : "memory");
#endif
}

// A tensor of attention with four dimensions and contiguous columns.
struct HeadsOfRows {
  const void* data;
  Wide type;
  int64_t columns;
  int64_t heads;
  int64_t rows;
  int64_t batches;
  // The number of elements from one row to the next, and from one batch to the next.
  int64_t rowStride;
  int64_t batchStride;
};

// Describes boxes of `rows` rows and 64 columns of `heads` heads, swizzled by 128 bytes. Returns an error if the driver lacks the
// function, or refuses the tensor: its address and strides must be multiples of 16 bytes.
inline cudaError_t describeBoxes(const HeadsOfRows& tensor, uint32_t rows, CUtensorMap* map, uint32_t heads = 1) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &status);
    return error == cudaSuccess && status == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto unsignedOf = [](int64_t count) { return static_cast<cuuint64_t>(count); };
  const cuuint64_t sizes[] = {unsignedOf(tensor.columns), unsignedOf(tensor.heads), unsignedOf(tensor.rows),
                              unsignedOf(tensor.batches)};
  const cuuint64_t strides[] = {unsignedOf(2 * tensor.columns), unsignedOf(2 * tensor.rowStride),
                                unsignedOf(2 * tensor.batchStride)};
  const cuuint32_t box[] = {64, heads, rows, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  const auto type = tensor.type == Wide::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const CUresult result =
      encode(map, type, 4, const_cast<void*>(tensor.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace lockstep
