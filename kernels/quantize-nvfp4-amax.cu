#include "kernels/device.cuh"
#include "kernels/hadamard.cuh"
#include "kernels/noop.cuh"
#include "kernels/pair.cuh"
#include "kernels/quantize-nvfp4.h"

namespace lockstep {

namespace {

constexpr uint32_t kWarp = 0xffffffffu;
constexpr int kThreads = 256;
// Chunks of 16 bytes that a thread of plainAmax has in flight.
constexpr int kChunks = 8;
// What a warp of transformedAmax covers: 4 columns a lane of 16 rows.
constexpr int kColumns = 128;
constexpr int kRows = 16;

// The amaxes that a pass raises: of the source for either copy, of the transformed values. Null where not wanted.
struct Records {
  float* plain[2];
  float* transformed;
};

// Raises a record to the largest value, by its bits, of the warp. The whole warp calls.
__device__ void raiseRecord(float* record, uint32_t value) {
  if (record == nullptr) return;
  const uint32_t largest = __reduce_max_sync(kWarp, value);
  uint32_t* bits = reinterpret_cast<uint32_t*>(record);
  // a stale record is only smaller
  if (threadIdx.x % 32 == 0 && largest > __ldcg(bits)) atomicMax(bits, largest);
}

__global__ void startAmaxes(Nvfp4Copy rowwise, Nvfp4Copy columnwise, const float* noop) {
  if (isNoop(noop)) return;
  for (const Nvfp4Copy& copy : {rowwise, columnwise}) {
    if (copy.data != nullptr) *copy.amax = copy.givenAmax != nullptr ? *copy.givenAmax : 0;
  }
}

// max |x| of `chunks` chunks, by its bits.
template <Wide type>
__device__ uint32_t amaxOf(const Bytes16 (&x)[kChunks]) {
  if constexpr (type == Wide::kF32) {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 4 * kChunks; ++i) largest = fmaxf(largest, fabsf(floatOf(x[i / 4].words[i % 4])));
    return bitsOf(largest);
  } else {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 4 * kChunks; ++i) largest = raiseToPair<type>(largest, x[i / 4].words[i % 4]);
    return bitsOf(lowOf<type>(maxOfLanes<type>(largest)));
  }
}

template <Wide type>
__global__ void __launch_bounds__(kThreads)
    plainAmax(const Bytes16* x, int64_t chunks, Records records, const float* noop) {
  if (isNoop(noop)) return;
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kChunks) + threadIdx.x;
  Bytes16 loaded[kChunks] = {};
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    if (first + i * kThreads < chunks) loaded[i] = x[first + i * kThreads];
  }
  const uint32_t largest = amaxOf<type>(loaded);
  raiseRecord(records.plain[0], largest);
  raiseRecord(records.plain[1], largest);
}

// A warp has 16 rows of 128 columns; the last 16 columns may be fewer lanes.
__global__ void __launch_bounds__(kThreads, 2) transformedAmax(const uint16_t* x, int64_t rows, int64_t columns,
                                                               uint32_t signs, Records records, const float* noop) {
  if (isNoop(noop)) return;
  const int64_t across = ceilDivide(columns, kColumns);
  const int64_t tile = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const int64_t column = tile % across * kColumns + threadIdx.x % 32 * 4;
  const int64_t row = tile / across * kRows;
  const bool inside = row < rows && column < columns;
  const uint16_t* from = x + row * columns + column;
  uint2 down[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    down[i] = inside ? *reinterpret_cast<const uint2*>(from + i * columns) : make_uint2(0, 0);
  }
  uint32_t transformed = 0;
  uint32_t plain = 0;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    uint32_t words[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t a = c < 2 ? down[2 * i].x : down[2 * i].y;
      const uint32_t b = c < 2 ? down[2 * i + 1].x : down[2 * i + 1].y;
      words[i] = c % 2 == 0 ? lowLanes(a, b) : highLanes(a, b);
      plain = raiseToPair<Wide::kBf16>(plain, words[i]);
    }
    transformed = max(transformed, hadamardAmax(words, signs));
  }
  raiseRecord(records.plain[0], maxOfLanes<Wide::kBf16>(plain) << 16);
  raiseRecord(records.transformed, transformed);
}

}  // namespace

cudaError_t launchNvfp4Amaxes(const QuantizeNvfp4Params& p, cudaStream_t stream) {
  startAmaxes<<<1, 1, 0, stream>>>(p.rowwise, p.columnwise, p.noop);
  const auto own = [](const Nvfp4Copy& copy) {
    return copy.data != nullptr && copy.givenAmax == nullptr ? copy.amax : nullptr;
  };
  float* const columnwise = own(p.columnwise);
  const Records records = {{own(p.rowwise), p.transforms ? nullptr : columnwise}, p.transforms ? columnwise : nullptr};
  const int64_t count = p.rows * p.columns;
  if (count == 0) return cudaGetLastError();
  if (records.transformed != nullptr) {
    const int64_t warps = ceilDivide(p.columns, kColumns) * (p.rows / kRows);
    transformedAmax<<<static_cast<uint32_t>(ceilDivide(warps, kThreads / 32)), kThreads, 0, stream>>>(
        static_cast<const uint16_t*>(p.x), p.rows, p.columns, p.signs, records, p.noop);
  } else if (records.plain[0] != nullptr || records.plain[1] != nullptr) {
    withWide(p.type, [&](auto type) {
      const int64_t chunks = count * sizeof(typename WideOf<type.value>::Storage) / 16;
      const uint32_t blocks = static_cast<uint32_t>(ceilDivide(chunks, kThreads * kChunks));
      plainAmax<type.value><<<blocks, kThreads, 0, stream>>>(static_cast<const Bytes16*>(p.x), chunks, records, p.noop);
    });
  }
  return cudaGetLastError();
}

}  // namespace lockstep
