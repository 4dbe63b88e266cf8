// Records cuBLASLt's results for sums of zero under signed factors, with and without split-K. Prints one JSON line for
// each product: the algorithm, and how many elements of D have which bits. README.md says how to run it.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#define CUDA(call)                                                                    \
  do {                                                                                \
    cudaError_t e = (call);                                                           \
    if (e != cudaSuccess) {                                                           \
      fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e));       \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)

using std::string;
using std::vector;

constexpr int M = 64, N = 64, K = 1024;

struct Kind {
  const char* name;
  cudaDataType_t type;
  int bytes;
  uint16_t zero, one, two, tiny;  // codes of 0, 1, 2 and a small normal number
  uint16_t sign;
};
// the small number is 2^-64 in bf16, 2^-14 in f16, 2^-6 in e4m3
const Kind kKinds[] = {
    {"bf16", CUDA_R_16BF, 2, 0, 0x3f80, 0x4000, 0x1f80, 0x8000},
    {"f16", CUDA_R_16F, 2, 0, 0x3c00, 0x4000, 0x0400, 0x8000},
    {"e4m3", CUDA_R_8F_E4M3, 1, 0, 0x38, 0x40, 0x08, 0x80},
};

// Operands a[row][k] (m lines) and b[row][k] (n lines), both K-contiguous.
enum Sum { kZeros, kMinusZeros, kCancelInside, kCancelAcross, kUnderflow, kOrdinary, kSums };
const char* kSumNames[] = {"zeros", "minusZeros", "cancelInside", "cancelAcross", "underflow", "ordinary"};

void fill(const Kind& kind, Sum sum, vector<uint8_t>& a, vector<uint8_t>& b) {
  auto put = [&](vector<uint8_t>& at, int i, uint16_t code) {
    memcpy(&at[size_t(i) * kind.bytes], &code, kind.bytes);
  };
  a.assign(size_t(M) * K * kind.bytes, 0);
  b.assign(size_t(N) * K * kind.bytes, 0);
  for (int row = 0; row < M; ++row)
    for (int k = 0; k < K; ++k) {
      uint16_t x = kind.zero, y = kind.one;
      if (sum == kMinusZeros) x = kind.zero | kind.sign;
      // every four elements are 1, -1, -2, 2, so that any range of whole fours sums to exactly zero
      if (sum == kCancelInside) {
        const uint16_t four[] = {kind.one, uint16_t(kind.one | kind.sign), uint16_t(kind.two | kind.sign), kind.two};
        x = four[k & 3];
      }
      // the sums of the four quarters of K are 1, -2, 3 and -2, so that halves and quarters have sums of opposite signs
      if (sum == kCancelAcross) {
        const int quarter = k / (K / 4), at = k % (K / 4);
        if (at < 3) {
          if (quarter == 0 && at < 1) x = kind.one;
          if (quarter == 1 && at < 1) x = kind.two | kind.sign;
          if (quarter == 2 && at < 2) x = at == 0 ? kind.two : kind.one;
          if (quarter == 3 && at < 1) x = kind.two | kind.sign;
        }
      }
      if (sum == kUnderflow) x = k == 5 ? kind.tiny : kind.zero;
      if (sum == kOrdinary) x = (k + row) % 3 ? kind.one : kind.two;
      put(a, row * K + k, x);
      if (row < N) put(b, row * K + k, y);
    }
}

struct Config {
  cublasLtMatmulAlgo_t algo;
  size_t workspace;
  int id, tile, stages, splitK, custom;
  uint32_t scheme, inner, cluster, swizzle;
};

template <typename T>
T get(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t what) {
  T value{};
  size_t written;
  cublasLtMatmulAlgoConfigGetAttribute(&algo, what, &value, sizeof(value), &written);
  return value;
}

Config describe(const cublasLtMatmulAlgo_t& algo, size_t workspace) {
  Config c{algo, workspace};
  c.id = get<int32_t>(algo, CUBLASLT_ALGO_CONFIG_ID);
  c.tile = get<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
  c.stages = get<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID);
  c.splitK = get<int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  c.scheme = get<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  c.swizzle = get<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
  c.custom = get<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
  c.inner = get<uint16_t>(algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID);
  c.cluster = get<uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
  return c;
}

int main() {
  cublasLtHandle_t blas;
  if (cublasLtCreate(&blas) != CUBLAS_STATUS_SUCCESS) return fprintf(stderr, "cublasLtCreate failed\n"), 1;
  cudaDeviceProp properties;
  CUDA(cudaGetDeviceProperties(&properties, 0));
  printf("{\"device\":\"%s\",\"cublasLt\":%zu,\"M\":%d,\"N\":%d,\"K\":%d}\n", properties.name, cublasLtGetVersion(), M, N, K);
  uint8_t *a, *b, *c, *d, *workspace;
  float* scalars;
  const size_t room = 64 << 20;
  CUDA(cudaMalloc(&a, M * K * 2));
  CUDA(cudaMalloc(&b, N * K * 2));
  CUDA(cudaMalloc(&c, M * N * 4));
  CUDA(cudaMalloc(&d, M * N * 4));
  CUDA(cudaMalloc(&workspace, room));
  CUDA(cudaMalloc(&scalars, 256));
  long products = 0, refused = 0;
  for (const Kind& kind : kKinds)
    for (cudaDataType_t out : {CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F}) {
      if (out != CUDA_R_32F && kind.bytes == 2 && out != kind.type) continue;
      const int outBytes = out == CUDA_R_32F ? 4 : 2;
      const char* outName = out == CUDA_R_32F ? "f32" : out == CUDA_R_16BF ? "bf16" : "f16";
      // factors: alpha, scaleA, scaleB
      struct Factors { float alpha, a, b; };
      vector<Factors> factors = {{1, 1, 1}, {-1, 1, 1}, {-0.5f, 1, 1}, {0, 1, 1}, {-0.f, 1, 1}, {-0x1p-140f, 1, 1}, {0x1p-140f, 1, 1}};
      if (kind.bytes == 1) factors.insert(factors.end(), {{1, -1, 1}, {1, 1, -1}, {1, -1, -1}, {-1, -1, 1}, {1, -0x1p-140f, 1}});
      for (bool deviceScalars : {false, true})
        for (float beta : {0.f, 1.f, -1.f}) {
          cublasLtMatmulDesc_t operation;
          cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
          const int32_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
          cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
          cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain);
          const int32_t mode = deviceScalars ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST;
          cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof mode);
          if (kind.bytes == 1) {
            const float *sa = scalars + 8, *sb = scalars + 16;
            cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &sa, sizeof sa);
            cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &sb, sizeof sb);
          }
          cublasLtMatrixLayout_t la, lb, lc, ld;
          cublasLtMatrixLayoutCreate(&la, kind.type, K, M, K);
          cublasLtMatrixLayoutCreate(&lb, kind.type, K, N, K);
          cublasLtMatrixLayoutCreate(&lc, out, M, N, M);
          cublasLtMatrixLayoutCreate(&ld, out, M, N, M);
          vector<Config> configs;
          std::set<vector<uint32_t>> seen;
          auto consider = [&](cublasLtMatmulAlgo_t algo, int split, uint32_t scheme) {
            if (split != 0) {
              cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split);
              cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme);
            }
            cublasLtMatmulHeuristicResult_t result{};
            if (cublasLtMatmulAlgoCheck(blas, operation, la, lb, lc, ld, &algo, &result) != CUBLAS_STATUS_SUCCESS ||
                result.workspaceSize > room)
              return;
            Config found = describe(algo, result.workspaceSize);
            const vector<uint32_t> key = {uint32_t(found.id), uint32_t(found.splitK), found.scheme};
            if (seen.insert(key).second) configs.push_back(found);
          };
          cublasLtMatmulPreference_t preference;
          cublasLtMatmulPreferenceCreate(&preference);
          cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room);
          vector<cublasLtMatmulHeuristicResult_t> proposals(64);
          int found = 0;
          cublasLtMatmulAlgoGetHeuristic(blas, operation, la, lb, lc, ld, preference, 64, proposals.data(), &found);
          vector<cublasLtMatmulAlgo_t> bases;
          for (int i = 0; i < found; ++i) {
            consider(proposals[i].algo, 0, 0);
            bases.push_back(proposals[i].algo);
          }
          // all algorithms that the library has for these types, with their first tiles and stages
          int ids[256], count = 0;
          cublasLtMatmulAlgoGetIds(blas, CUBLAS_COMPUTE_32F, CUDA_R_32F, kind.type, kind.type, out, out, 256, ids, &count);
          for (int i = 0; i < count; ++i) {
            cublasLtMatmulAlgo_t algo;
            if (cublasLtMatmulAlgoInit(blas, CUBLAS_COMPUTE_32F, CUDA_R_32F, kind.type, kind.type, out, out, ids[i], &algo) != CUBLAS_STATUS_SUCCESS) continue;
            uint32_t tiles[256], stages[256];
            size_t written = 0;
            int tileCount = 0, stageCount = 0;
            if (cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_TILE_IDS, tiles, sizeof tiles, &written) == CUBLAS_STATUS_SUCCESS) tileCount = written / 4;
            if (cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_STAGES_IDS, stages, sizeof stages, &written) == CUBLAS_STATUS_SUCCESS) stageCount = written / 4;
            for (int t = 0; t < (tileCount ? tileCount : 1); ++t)
              for (int s = 0; s < (stageCount ? stageCount : 1); ++s) {
                cublasLtMatmulAlgo_t base = algo;
                if (tileCount) cublasLtMatmulAlgoConfigSetAttribute(&base, CUBLASLT_ALGO_CONFIG_TILE_ID, &tiles[t], 4);
                if (stageCount) cublasLtMatmulAlgoConfigSetAttribute(&base, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages[s], 4);
                bases.push_back(base);
              }
          }
          for (const auto& base : bases)
            for (int split : {1, 2, 3, 4})
              for (uint32_t scheme : {0u, 1u, 2u, 4u})
                if ((split == 1) == (scheme == 0)) consider(base, split, scheme);
          if (configs.empty()) ++refused;
          for (int sum = 0; sum < kSums; ++sum) {
            vector<uint8_t> ha, hb;
            fill(kind, Sum(sum), ha, hb);
            CUDA(cudaMemcpy(a, ha.data(), ha.size(), cudaMemcpyHostToDevice));
            CUDA(cudaMemcpy(b, hb.data(), hb.size(), cudaMemcpyHostToDevice));
            for (const Factors& f : factors)
              for (uint32_t addend : {0u, 0x80000000u}) {
                if (beta == 0 && addend != 0) continue;
                vector<uint8_t> hc(M * N * outBytes, 0);
                if (addend != 0)
                  for (size_t i = 0; i < hc.size(); ++i) hc[i] = int(i) % outBytes == outBytes - 1 ? 0x80 : 0;
                CUDA(cudaMemcpy(c, hc.data(), hc.size(), cudaMemcpyHostToDevice));
                float host[64] = {};
                host[0] = f.alpha, host[1] = beta, host[8] = f.a, host[16] = f.b;
                CUDA(cudaMemcpy(scalars, host, sizeof host, cudaMemcpyHostToDevice));
                for (const Config& config : configs)
                  for (bool inPlace : {false, true}) {
                    if (inPlace && beta == 0) continue;
                    CUDA(cudaMemset(d, 0xaa, M * N * outBytes));
                    if (inPlace) CUDA(cudaMemcpy(d, hc.data(), hc.size(), cudaMemcpyHostToDevice));
                    CUDA(cudaMemset(workspace, 0xff, config.workspace));
                    const void* alpha = deviceScalars ? (const void*)scalars : &f.alpha;
                    const void* betaAt = deviceScalars ? (const void*)(scalars + 1) : &beta;
                    const auto status = cublasLtMatmul(blas, operation, alpha, a, la, b, lb, betaAt, inPlace ? d : c, lc, d, ld,
                                                       &config.algo, workspace, config.workspace, nullptr);
                    if (status != CUBLAS_STATUS_SUCCESS) {
                      ++refused;
                      continue;
                    }
                    vector<uint8_t> hd(M * N * outBytes);
                    CUDA(cudaMemcpy(hd.data(), d, hd.size(), cudaMemcpyDeviceToHost));
                    std::map<uint32_t, int> bits;
                    for (int i = 0; i < M * N; ++i) {
                      uint32_t word = 0;
                      memcpy(&word, &hd[size_t(i) * outBytes], outBytes);
                      ++bits[word];
                    }
                    printf("{\"type\":\"%s\",\"out\":\"%s\",\"sum\":\"%s\",\"alpha\":\"%a\",\"scaleA\":\"%a\",\"scaleB\":\"%a\",\"beta\":%g,"
                           "\"c\":\"%s\",\"inPlace\":%d,\"device\":%d,\"id\":%d,\"tile\":%d,\"stages\":%d,\"splitK\":%d,\"scheme\":%u,\"bits\":{",
                           kind.name, outName, kSumNames[sum], f.alpha, f.a, f.b, beta, addend ? "-0" : "+0", inPlace, deviceScalars,
                           config.id, config.tile, config.stages, config.splitK, config.scheme);
                    int shown = 0;
                    for (auto [word, times] : bits)
                      if (shown++ < 4) printf("%s\"%0*x\":%d", shown > 1 ? "," : "", outBytes * 2, word, times);
                    printf("}}\n");
                    ++products;
                  }
              }
          }
          cublasLtMatmulPreferenceDestroy(preference);
          cublasLtMatmulDescDestroy(operation);
        }
    }
  CUDA(cudaDeviceSynchronize());
  fprintf(stderr, "%ld products, %ld refused\n", products, refused);
}
