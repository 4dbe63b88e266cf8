// A quantizer to MXFP8 in CUDA, by the dialect `te`: e4m3, blocks of 32, scales rounded up, ties to even. Lockstep tests it by
//
//   nvcc -std=c++17 -arch=native -o subject examples/subjects/mxfp8.cu
//   lockstep conform --subject ./subject

#include <cuda_fp8.h>

#include <algorithm>

#include "frames.hpp"

namespace {

constexpr int kBlock = 32;
constexpr int kThreads = 256;

/** The code of the smallest power of two p with amax / p <= 448: the exponent of amax / 448, rounded up. */
__device__ unsigned scale_of(float amax) {
  const unsigned bits = __float_as_uint(__fmul_rn(amax, 1.0f / 448));
  const unsigned field = bits >> 23, fraction = bits & 0x7fffff;
  const bool up = field == 0 ? fraction > 0x400000 : fraction > 0;
  return min(field + up, 254u);
}

/** 2^(127 - scale). For 254 the result is subnormal. */
__device__ float factor_of(unsigned scale) { return __uint_as_float(scale == 254 ? 0x400000 : (254 - scale) << 23); }

/** Each warp quantizes one block of 32, each lane one element. `count` is a multiple of 32. */
__global__ void quantize_blocks(const float* x, std::uint8_t* codes, std::uint8_t* scales, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const float magnitude = fabsf(x[i]);
  // magnitudes have the same order as their bits; a NaN does not count in the amax
  const unsigned amax = __reduce_max_sync(0xffffffff, isnan(magnitude) ? 0 : __float_as_uint(magnitude));
  const unsigned scale = scale_of(__uint_as_float(amax));
  const float scaled = __fmul_rn(x[i], factor_of(scale));
  codes[i] = __nv_cvt_float_to_fp8(scaled, __NV_SATFINITE, __NV_E4M3);
  if (threadIdx.x % kBlock == 0) scales[i / kBlock] = static_cast<std::uint8_t>(scale);
}

void require(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/** Device memory for bytes that are copied to the device and back. */
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t count) : count_(count) {
    require(cudaMalloc(&data_, std::max<std::size_t>(count, 1)));
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(data_); }

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  void fill(const std::vector<std::uint8_t>& bytes) {
    require(cudaMemcpy(data_, bytes.data(), count_, cudaMemcpyHostToDevice));
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> result(count_);
    require(cudaMemcpy(result.data(), data_, count_, cudaMemcpyDeviceToHost));
    return result;
  }

 private:
  std::size_t count_;
  void* data_ = nullptr;
};

frames::Tensors quantize(const frames::Json&, const frames::Tensors& tensors) {
  const frames::Tensor& x = tensors.at("x");
  const std::size_t rows = x.shape.at(0), columns = x.shape.at(1), count = rows * columns;
  DeviceBytes values(x.bytes.size()), codes(count), scales(count / kBlock);
  values.fill(x.bytes);
  if (count > 0) {
    const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
    quantize_blocks<<<blocks, kThreads>>>(values.as<float>(), codes.as<std::uint8_t>(), scales.as<std::uint8_t>(),
                                          count);
    require(cudaGetLastError());
  }
  return {{"rowwise.data", {"U8", {rows, columns}, codes.bytes()}},
          {"rowwise.scaleInv", {"U8", {rows, columns / kBlock}, scales.bytes()}}};
}

constexpr const char* kSupported = R"({
  "spec.quantizer": ["mxfp8"], "spec.format": ["e4m3"], "spec.tile": ["1x32"],
  "spec.scaleRule": ["e8m0Up"], "spec.elementScaling": ["multiply"], "spec.stochastic": [false],
  "usage.rowwise": [true], "usage.columnwise": [false], "scaleLayout": ["logical"],
  "x.dtype": ["f32"], "x.shape.length": [2], "noop": [null]
})";

}  // namespace

int main() { return frames::answer_cases("mxfp8 in CUDA", "quantize", kSupported, quantize); }
