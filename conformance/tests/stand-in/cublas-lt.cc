// A stand-in for cuBLASLt that needs no GPU. It offers three algorithms for every product; algorithm i needs 4096 * i bytes of
// workspace. A product only reads or writes the first and last bytes of each of its buffers.
#include <cublasLt.h>

#include <cstring>
#include <map>
#include <vector>

#include "conformance/tests/stand-in/touch.h"

namespace {

using standin::bytesOf;

constexpr int kAlgorithms = 3;

struct Operation {
  std::map<int, std::vector<uint8_t>> attributes;

  template <typename T>
  T get(cublasLtMatmulDescAttributes_t attribute, T otherwise = {}) const {
    const auto found = attributes.find(attribute);
    if (found == attributes.end()) return otherwise;
    T value;
    std::memcpy(&value, found->second.data(), sizeof(value));
    return value;
  }
};

struct Layout {
  cudaDataType_t type;
  uint64_t rows;
  uint64_t columns;
  int64_t pitch;
  int32_t count = 1;
  int64_t stride = 0;
};

uint64_t bitsOf(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F:
      return 32;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 16;
    case CUDA_R_4F_E2M1:
      return 4;
    default:
      return 8;
  }
}

uint64_t bytesOfMatrix(const Layout& m) {
  return bytesOf((m.count - 1) * m.stride + static_cast<int64_t>(m.columns - 1) * m.pitch + static_cast<int64_t>(m.rows),
                 bitsOf(m.type));
}

const Operation& in(cublasLtMatmulDesc_t operation) { return *reinterpret_cast<Operation*>(operation); }
const Layout& in(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }

uint64_t workspaceOf(const cublasLtMatmulAlgo_t& algorithm) { return algorithm.data[0] * 4096; }

uint64_t scaleBytes(int32_t mode, uint64_t lines, uint64_t k) {
  const auto up = [](uint64_t value, uint64_t step) { return (value + step - 1) / step; };
  switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3:
      return up(lines, 128) * up(k, 64) * 512;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
      return up(lines, 128) * up(k, 128) * 512;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
      return up(k, 128) * up(lines, 4) * 16;
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      return up(lines, 128) * up(k, 512) * 16;
    default:
      return 4;
  }
}

}  // namespace

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS"; }
size_t cublasLtGetVersion() { return 130100; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t, cudaDataType_t) {
  *operation = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete reinterpret_cast<Operation*>(operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* data, size_t bytes) {
  const auto* from = static_cast<const uint8_t*>(data);
  reinterpret_cast<Operation*>(operation)->attributes[attribute].assign(from, from + bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t pitch) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, pitch});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* data, size_t bytes) {
  auto* m = reinterpret_cast<Layout*>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
    std::memcpy(&m->count, data, bytes);
  } else {
    std::memcpy(&m->stride, data, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  if (algorithm->data[0] >= kAlgorithms) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->algo = *algorithm;
  result->workspaceSize = workspaceOf(*algorithm);
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  for (*found = 0; *found < wanted && *found < kAlgorithms; ++*found) {
    const cublasLtMatmulAlgo_t algorithm{{static_cast<uint64_t>(*found)}};
    cublasLtMatmulAlgoCheck(handle, operation, a, b, c, d, &algorithm, &results[*found]);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t, cudaDataType_t, cudaDataType_t,
                                      cudaDataType_t, cudaDataType_t, cudaDataType_t, int id,
                                      cublasLtMatmulAlgo_t* algorithm) {
  *algorithm = {{static_cast<uint64_t>(id)}};
  return id >= 0 && id < kAlgorithms ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* data,
                                                    size_t bytes, size_t*) {
  std::memset(data, 0, bytes);
  if (attribute == CUBLASLT_ALGO_CONFIG_ID) std::memcpy(data, algorithm->data, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t descriptor, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t aLayout, const void* b, cublasLtMatrixLayout_t bLayout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t cLayout, void* d,
                              cublasLtMatrixLayout_t dLayout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspaceBytes, cudaStream_t stream) {
  standin::on(stream);
  const Operation& g = in(descriptor);
  if (workspaceBytes < workspaceOf(*algorithm)) return CUBLAS_STATUS_INVALID_VALUE;
  standin::writes(workspace, workspaceOf(*algorithm));
  standin::reads(alpha, 4);
  standin::reads(beta, 4);
  standin::reads(a, bytesOfMatrix(in(aLayout)));
  standin::reads(b, bytesOfMatrix(in(bLayout)));
  standin::reads(c, bytesOfMatrix(in(cLayout)));
  standin::writes(d, bytesOfMatrix(in(dLayout)));
  const auto [m, n] = std::pair{in(dLayout).rows, in(dLayout).columns};
  const bool transposed = g.get<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
  const uint64_t k = transposed ? in(aLayout).rows : in(aLayout).columns;
  const auto readScales = [&](auto pointer, auto mode, uint64_t lines) {
    standin::reads(g.get<const void*>(pointer), scaleBytes(g.get<int32_t>(mode), lines, k));
  };
  readScales(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, m);
  readScales(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, n);
  const auto typeOf = [&](auto attribute) { return static_cast<cudaDataType_t>(g.get<int32_t>(attribute, CUDA_R_32F)); };
  standin::reads(g.get<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER),
                 bytesOf(static_cast<int64_t>(m), bitsOf(typeOf(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE))));
  standin::writes(g.get<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER),
                  bytesOf(static_cast<int64_t>(m * n), bitsOf(typeOf(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE))));
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
