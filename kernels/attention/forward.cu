// The forward pass of attention in plain arithmetic (docs/numerics.md §10.3). A warp computes one query of a head. Each lane
// computes the score of one key, and then some columns of the output.
#include "kernels/attention/plain.h"
#include "kernels/attention/rows.cuh"

namespace lockstep {

namespace {

constexpr int kMaxBlockKeys = 1024;
constexpr float kInfinity = __builtin_huge_valf();
constexpr float kLn2Float = static_cast<float>(kLn2);

// A block of keys of one row: the scores z, later the probabilities, and a bit for each visible key.
struct KeyBlock {
  float values[kMaxBlockKeys];
  uint32_t visible[kMaxBlockKeys / kLanes];
};

// The base of a row's exponents: `scaled`, or +0 if `scaled` is minus infinity.
__device__ inline float baseOf(float scaled) { return scaled == -kInfinity ? 0.0f : scaled; }

// The state of a row in one split of the keys, and its totals over earlier splits. All lanes of the warp have the same state,
// except for the columns of the outputs and the sum: lane l has the partial sum of keys l modulo 8.
struct RowState {
  float maximum = -kInfinity;
  float scaled = -kInfinity;
  float sum = 0;
  float outputs[kLaneColumns] = {};
  bool isSeen = false;
  float largest = -kInfinity;
  float totalScaled = -kInfinity;
  float total = 0;
  float totals[kLaneColumns] = {};

  // Merges a split with scaled maximum r, sum e and outputs o into the totals.
  __device__ void merge(float r, float e, const float (&o)[kLaneColumns]) {
    const float larger = r > totalScaled ? r : totalScaled;
    const float base = baseOf(larger);
    const float f = ex2(totalScaled - base);
    const float g = ex2(r - base);
    totalScaled = larger;
    total = total * f + e * g;
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) totals[c] = totals[c] * f + o[c] * g;
  }

  // Merges the split into the totals, and begins the next split.
  __device__ void closeSplit() {
    if (!isSeen) return;
    float e = sum;
#pragma unroll
    for (int w = 1; w < 8; w *= 2) e += __shfl_xor_sync(kFullMask, e, w);
    largest = maximum > largest ? maximum : largest;
    merge(scaled, e, outputs);
    maximum = -kInfinity;
    scaled = -kInfinity;
    sum = 0;
    isSeen = false;
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) outputs[c] = 0;
  }
};

// A split record (plain.h), with the columns of one lane.
struct SplitRecord {
  float outputs[kLaneColumns];
  float scaled;
  float sum;
  float maximum;
  float isSeen;

  // `first` is the lane's first column of a record with `width` outputs.
  __device__ void load(const float* record, int32_t width, int32_t first) {
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) {
      const int32_t column = first + c * kLanes;
      outputs[c] = column < width ? record[column] : 0.0f;
    }
    scaled = record[width];
    sum = record[width + 1];
    maximum = record[width + 2];
    isSeen = record[width + 3];
  }
};

// One query of a head and a sequence.
template <Wide type>
struct QueryTask {
  const AttentionParams& p;
  const Sequence& sequence;
  int32_t head;
  int32_t i;
  KeyBlock& block;
  int lane = static_cast<int>(threadIdx.x) % kLanes;
  int32_t keyHead = keyHeadOf(p.rule, head);
  Datapath datapath = datapathOf(p.rule);
  VisibleKeys isVisible = visibleKeysOf(p.rule, sequence, head, i);
  float factor = scoreFactor(p.rule);

  // Computes the scores of keys [key, key + count). Returns the maximum of these scores and `bound`, NaN ignored. Sets `isSeen`
  // to whether one of the keys is visible.
  __device__ float computeScores(int32_t key, int32_t count, float bound, bool& isSeen) {
    const AttentionRule& rule = p.rule;
    const ElementRow q = queryRow(rule, rule.q, rule.width, sequence, head, i);
    const ScoreRow row = scoreRowOf(rule, sequence, head, i);
    uint32_t seen = 0;
    for (int32_t first = 0; first < count; first += kLanes) {
      const int32_t n = first + lane;
      const bool isShown = n < count && isVisible(key + n);
      float z = 0;
      if (isShown) {
        const ElementRow k = keyRow(rule, rule.k, rule.width, sequence, keyHead, key + n);
        float bounded;
        z = scoreOf(rule, row, key + n, multiplyRows<type>(datapath, q, k), bounded);
        bound = bound < z ? z : bound;
      }
      block.values[n] = z;
      const uint32_t visible = __ballot_sync(kFullMask, isShown);
      if (lane == 0) block.visible[first / kLanes] = visible;
      seen |= visible;
    }
    __syncwarp();
    isSeen = seen != 0;
    return maximumOfLanes(bound);
  }

  __device__ bool isKeyVisible(int32_t n) const { return block.visible[n / kLanes] >> n % kLanes & 1; }

  // Replaces the scores of the block by probabilities and adds these to the sums of the row.
  __device__ void addProbabilities(int32_t count, float base, RowState& state) {
    for (int32_t n = lane; n < count; n += kLanes) {
      block.values[n] = isKeyVisible(n) ? ex2(__fmaf_rn(block.values[n], factor, -base)) : 0.0f;
    }
    __syncwarp();
    for (int32_t n = lane % 8; n < count; n += 8) state.sum += block.values[n];
    __syncwarp();
  }

  // Rounds the probabilities of the block, and sets the probabilities of dropped keys to 0.
  __device__ void roundProbabilities(int32_t key, int32_t count) {
    const Dropout dropout = dropoutOf(p.rule, p.random, sequence, head, i);
    for (int32_t n = lane; n < count; n += kLanes) {
      block.values[n] = dropout.drops(key + n) ? 0.0f : rounded<type>(block.values[n]);
    }
    __syncwarp();
  }

  // Adds keys [key, key + count) to the row: to its sum, and to the outputs of the columns from `column` on.
  __device__ void addBlock(int32_t key, int32_t count, int32_t column, RowState& state) {
    bool isSeen;
    const float maximum = computeScores(key, count, state.maximum, isSeen);
    if (!isSeen) return;
    state.isSeen = true;
    state.maximum = maximum;
    const float scaled = maximum * factor;
    const float base = baseOf(scaled);
    const float decay = ex2(state.scaled - base);
    state.scaled = scaled;
    state.sum *= decay;
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) state.outputs[c] = state.outputs[c] * decay + 0.0f;
    addProbabilities(count, base, state);
    roundProbabilities(key, count);
    const AttentionRule& rule = p.rule;
    for (int32_t n = 0; n < count; n += kTerms) {
      const uint32_t used = block.visible[n / kLanes] >> n % kLanes & 0xffff;
      const auto rowOf = [&](int m) { return keyRow(rule, rule.v, rule.valueWidth, sequence, keyHead, key + n + m); };
      addRows<type>(datapath, block.values + n, used, column, rule.valueWidth, rowOf, state.outputs);
    }
    __syncwarp();
  }

  // Computes columns [column, column + kColumnsAtOnce) of the row, and its statistics.
  __device__ void attend(int32_t column) {
    const AttentionRule& rule = p.rule;
    RowState state;
    int32_t split = 0;
    const int32_t keys = rule.blockKeys;
    for (int64_t key = isVisible.begin / keys * keys; key < isVisible.end; key += keys) {
      const auto first = static_cast<int32_t>(key);
      if (rule.splitKeys != 0 && first / rule.splitKeys != split) {
        state.closeSplit();
        split = first / rule.splitKeys;
      }
      addBlock(first, min(keys, sequence.keys - first), column, state);
    }
    state.closeSplit();
    finishTotals(state, column);
  }

  // Computes columns [column, column + kColumnsAtOnce) of the row from the records of its splits.
  __device__ void mergeRecords(const float* records, int32_t column) {
    const int splits = splitsOf(p.rule);
    RowState state;
    SplitRecord next;
    next.load(records, p.rule.valueWidth, column + lane);
    for (int split = 0; split < splits; ++split) {
      const SplitRecord record = next;
      // the next record is loaded while this one is merged
      if (split + 1 < splits) {
        records += p.rule.valueWidth + kSplitNumbers;
        next.load(records, p.rule.valueWidth, column + lane);
      }
      if (record.isSeen == 0) continue;
      state.largest = record.maximum > state.largest ? record.maximum : state.largest;
      state.merge(record.scaled, record.sum, record.outputs);
    }
    finishTotals(state, column);
  }

  // Merges the sink, if there is one, and writes the results.
  __device__ void finishTotals(RowState& state, int32_t column) {
    if (p.rule.sinks != nullptr) {
      const float zeros[kLaneColumns] = {};
      state.merge(p.rule.sinks[head] * kLog2EFloat, 1.0f, zeros);
    }
    finish(state, column);
  }

  __device__ void finish(RowState& state, int32_t column) {
    const bool isEmpty = state.total == 0;
    const float outputFactor = isEmpty ? 0.0f : p.rule.keep / state.total;
    if (isEmpty) {
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) state.totals[c] = 0;
    }
    const ElementRow out = queryRow(p.rule, p.out, p.rule.valueWidth, sequence, head, i);
    storeColumns<type>(p.out, out.first, column, out.width, state.totals, outputFactor);
    if (column != 0 || lane != 0) return;
    p.lse[statisticOf(p.rule, sequence, head, i)] =
        isEmpty ? -kInfinity : __fmaf_rn(state.totalScaled, kLn2Float, logarithm(state.total));
    if (p.maxLogits == nullptr) return;
    // Floats from +0 up have the order of their bits as signed integers. Negative floats have the reverse order of their bits as
    // unsigned integers.
    const float logit = state.largest * logitFactor(p.rule) + 0.0f;
    if (logit >= 0) {
      atomicMax(reinterpret_cast<int*>(p.maxLogits + head), __float_as_int(logit));
    } else if (logit < 0) {
      atomicMin(reinterpret_cast<unsigned*>(p.maxLogits + head), __float_as_uint(logit));
    }
  }
};

template <Wide type>
__global__ void __launch_bounds__(kRowBlock) attendKernel(const AttentionParams p, const int32_t* list) {
  __shared__ KeyBlock blocks[kRowWarps];
  const AttentionRule& rule = p.rule;
  forEachRow(static_cast<int64_t>(rule.batch) * rule.heads, rule.queries, list, [&](int64_t head, int32_t i) {
    const Sequence sequence = sequenceOf(rule, static_cast<int32_t>(head / rule.heads));
    if (i >= sequence.queries) return;
    KeyBlock& block = blocks[threadIdx.x / kLanes];
    QueryTask<type> task{p, sequence, static_cast<int32_t>(head % rule.heads), i, block};
    int32_t column = 0;
    do {
      task.attend(column);
      column += kColumnsAtOnce;
    } while (column < rule.valueWidth);
  });
}

template <Wide type>
__global__ void __launch_bounds__(kRowBlock) mergeKernel(const AttentionParams p) {
  __shared__ KeyBlock blocks[kRowWarps];
  const AttentionRule& rule = p.rule;
  const int splits = splitsOf(rule);
  const int64_t length = rule.valueWidth + kSplitNumbers;
  forEachRow(static_cast<int64_t>(rule.batch) * rule.heads, rule.queries, nullptr, [&](int64_t head, int32_t i) {
    const Sequence sequence = sequenceOf(rule, static_cast<int32_t>(head / rule.heads));
    if (i >= sequence.queries) return;
    KeyBlock& block = blocks[threadIdx.x / kLanes];
    QueryTask<type> task{p, sequence, static_cast<int32_t>(head % rule.heads), i, block};
    const float* records = partialsOf(p) + statisticOf(rule, sequence, task.head, i) * splits * length;
    for (int32_t column = 0; column < rule.valueWidth; column += kColumnsAtOnce) task.mergeRecords(records, column);
  });
}

__global__ void fillKernel(float* lse, int64_t rows, float* maxLogits, int64_t heads) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows + heads; i += stride) {
    (i < rows ? lse[i] : maxLogits[i - rows]) = -kInfinity;
  }
}

}  // namespace

cudaError_t fillStatistics(const AttentionParams& p, cudaStream_t stream) {
  const AttentionRule& rule = p.rule;
  const int64_t rows = static_cast<int64_t>(rule.statisticBatches) * rule.heads * rule.queries;
  const int64_t heads = p.maxLogits != nullptr ? rule.heads : 0;
  if (rows + heads == 0) return cudaSuccess;
  constexpr int kFillThreads = 256;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(ceilDivide(rows + heads, kFillThreads), 4096));
  fillKernel<<<blocks, kFillThreads, 0, stream>>>(p.lse, rows, p.maxLogits, heads);
  return cudaGetLastError();
}

cudaError_t mergeSplits(const AttentionParams& p, cudaStream_t stream) {
  const int64_t rows = static_cast<int64_t>(p.rule.batch) * p.rule.heads * p.rule.queries;
  return withWide(p.rule.qType, [&](auto type) {
    mergeKernel<type.value><<<rowBlocks(rows, nullptr), kRowBlock, 0, stream>>>(p);
    return cudaGetLastError();
  });
}

cudaError_t attendPlain(const AttentionParams& p, const int32_t* list, cudaStream_t stream) {
  const int64_t rows = static_cast<int64_t>(p.rule.batch) * p.rule.heads * p.rule.queries;
  if (rows == 0) return cudaSuccess;
  return withWide(p.rule.qType, [&](auto type) {
    attendKernel<type.value><<<rowBlocks(rows, list), kRowBlock, 0, stream>>>(p, list);
    return cudaGetLastError();
  });
}

}  // namespace lockstep
