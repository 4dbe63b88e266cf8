// Loops that need no second iteration in the GPU tests, and the reasons. `text` is the head of the loop as the report
// prints it; `unit` is a .cu file, if the reason holds for that file only.
export const EXCEPTIONS = [
  {
    file: "kernels/rows/norm-backward.cu",
    text: "for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kLanes; row < p.rows; row += step)",
    reason: "the grid has a warp for each of 2^34 rows, more than memory holds",
  },
  {
    file: "kernels/rows/norm-forward.cuh",
    text: "for (int64_t row = static_cast<int64_t>(blockIdx.x) * kMaxWarps + threadIdx.x / kLanes; row < p.rows; row += step)",
    reason: "the grid has a warp for each of 2^30 rows, more than memory holds",
  },
  {
    file: "kernels/device/ring.cuh",
    text: "for (int line = 0; line < count; ++line)",
    reason: "compiled for GPUs before sm_90 alone",
  },
  {
    file: "kernels/device/ring.cuh",
    text: "for (int i = lane * kElements; i < width; i += kLanes * kElements)",
    reason: "compiled for GPUs before sm_90 alone",
  },
  {
    file: "native/core/memory.cc",
    text: "for (int i = 0; i < count; ++i)",
    reason: "a turn for each GPU, of which the tests need one",
  },
];
