#include "native/gemm/plan.h"

#include <cstring>
#include <string>

#include "native/core/call.h"

namespace lockstep {

namespace {

// A placeholder address with the alignment of allocations. cuBLASLt checks its alignment while a plan is created, but does not
// read there.
const void* const kAligned = reinterpret_cast<const void*>(uintptr_t{256});

uint64_t bitsOfType(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F:
      return 32;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 16;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return 8;
    case CUDA_R_4F_E2M1:
      return 4;
    default:
      throw Failure{"ARGUMENT", "type " + std::to_string(type) + " is not a supported operand type"};
  }
}

void expect(const char* what, cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Failure{"BACKEND", std::string(what) + ": cuBLASLt: " + cublasLtGetStatusName(status)};
}

template <typename T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  expect("cublasLtMatmulDescSetAttribute", cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)));
}

// Reads an attribute of an algorithm. Leaves `value` unchanged if the algorithm does not have the attribute.
template <typename T>
void read(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, T& value) {
  size_t written = 0;
  T found;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &found, sizeof(found), &written);
  if (status == CUBLAS_STATUS_SUCCESS) value = found;
}

template <typename T>
bool write(cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute, const T& value) {
  return cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
}

GemmAlgorithm describe(const cublasLtMatmulAlgo_t& algorithm, uint64_t workspace) {
  GemmAlgorithm found;
  read(algorithm, CUBLASLT_ALGO_CONFIG_ID, found.id);
  read(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, found.tile);
  read(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, found.stages);
  read(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, found.splitK);
  read(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, found.scheme);
  read(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, found.swizzle);
  read(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, found.customOption);
  read(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, found.innerShape);
  read(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, found.cluster);
  found.workspace = workspace;
  std::memcpy(found.words.data(), &algorithm, sizeof(algorithm));
  return found;
}

void require(bool holds, const char* what) {
  if (!holds) throw Failure{"ARGUMENT", std::string("gemm plan: ") + what};
}

// The number of elements from the first to the last element of a matrix, including the gaps between columns.
uint64_t elementsOf(const MatrixLayout& m) { return product({m.columns - 1, m.pitch}) + m.rows; }

cublasLtEpilogue_t epilogueOf(const GemmDescription& g) {
  if (g.aux) return g.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return g.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

uint64_t up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

}  // namespace

GemmPlan::GemmPlan(const GemmDescription& description) : description_(description) {
  const GemmDescription& g = description_;
  require(g.m > 0 && g.n > 0 && g.k > 0 && g.batch > 0, "a size is 0");
  require(g.m <= INT32_MAX && g.n <= INT32_MAX && g.k <= INT32_MAX && g.batch <= INT32_MAX, "a size exceeds 2^31");
  for (const MatrixLayout* layout : {&g.a, &g.b, &g.c, &g.d}) {
    require(layout->pitch >= layout->rows, "a pitch is smaller than a row");
    require(g.batch == 1 || layout->stride >= elementsOf(*layout), "batches overlap");
  }
  cublasLtMatmulDesc_t operation = nullptr;
  expect("cublasLtMatmulDescCreate", cublasLtMatmulDescCreate(&operation, g.compute, CUDA_R_32F));
  operation_.reset(operation);
  set<int32_t>(operation, CUBLASLT_MATMUL_DESC_TRANSA, g.transposeA ? CUBLAS_OP_T : CUBLAS_OP_N);
  set<int32_t>(operation, CUBLASLT_MATMUL_DESC_TRANSB, g.transposeB ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (g.fastAccumulation) set<int8_t>(operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, 1);
  if (g.deviceScalars) set<int32_t>(operation, CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  if (g.scaleA) {
    set<int32_t>(operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, *g.scaleA);
    set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, kAligned);
  }
  if (g.scaleB) {
    set<int32_t>(operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, *g.scaleB);
    set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, kAligned);
  }
  require(!g.aux || g.batch == 1, "GELU is fused into one product, not a batch");
  set<uint32_t>(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogueOf(g));
  if (g.bias) {
    set<int32_t>(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, *g.bias);
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, kAligned);
  }
  if (g.aux) {
    set<int64_t>(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<int64_t>(g.m));
    set<int32_t>(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, *g.aux);
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kAligned);
  }
  a_ = layoutOf(g.a);
  b_ = layoutOf(g.b);
  c_ = layoutOf(g.c);
  d_ = layoutOf(g.d);
}

GemmPlan::Layout GemmPlan::layoutOf(const MatrixLayout& m) const {
  bitsOfType(m.type);
  cublasLtMatrixLayout_t layout = nullptr;
  expect("cublasLtMatrixLayoutCreate",
         cublasLtMatrixLayoutCreate(&layout, m.type, m.rows, m.columns, static_cast<int64_t>(m.pitch)));
  Layout owned(layout);
  if (description_.batch == 1) return owned;
  const int32_t count = static_cast<int32_t>(description_.batch);
  const int64_t stride = static_cast<int64_t>(m.stride);
  expect("cublasLtMatrixLayoutSetAttribute",
         cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
  expect(
      "cublasLtMatrixLayoutSetAttribute",
      cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
  return owned;
}

uint64_t GemmPlan::bytes(const MatrixLayout& m) const {
  return bytesOf(product({description_.batch - 1, m.stride}) + elementsOf(m), bitsOfType(m.type));
}

uint64_t GemmPlan::scaleBytes(cublasLtMatmulMatrixScale_t mode, uint64_t lines) const {
  const auto blocks = [this](uint64_t length) { return (description_.k + length - 1) / length; };
  switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F:
      return 4;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3:
      return product({up(lines, 128), up(blocks(16), 4)});
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
      return product({up(lines, 128), up(blocks(32), 4)});
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
      return product({blocks(128), up(lines, 4), 4});
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      return product({(lines + 127) / 128, up(blocks(128), 4), 4});
    default:
      throw Failure{"ARGUMENT", "scale mode " + std::to_string(mode) + " is not a supported scale mode"};
  }
}

uint64_t GemmPlan::biasBytes() const {
  return description_.bias ? bytesOf(description_.m, bitsOfType(*description_.bias)) : 0;
}

uint64_t GemmPlan::auxBytes() const {
  return description_.aux ? bytesOf(product({description_.m, description_.n}), bitsOfType(*description_.aux)) : 0;
}

std::vector<GemmAlgorithm> GemmPlan::search(cublasLtHandle_t blas, const GemmSearch& search) const {
  cublasLtMatmulPreferenceOpaque_t preference;
  expect("cublasLtMatmulPreferenceInit", cublasLtMatmulPreferenceInit(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    expect("cublasLtMatmulPreferenceSetAttribute",
           cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, search.workspace);
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, search.schemes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, search.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, search.alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(search.count);
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(blas, operation_.get(), a_.get(), b_.get(), c_.get(), d_.get(), &preference,
                                     search.count, results.data(), &found);
  // an unsupported product gives an empty result, not an error
  if (status != CUBLAS_STATUS_SUCCESS) return {};
  std::vector<GemmAlgorithm> algorithms;
  for (int i = 0; i < found; ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS) {
      algorithms.push_back(describe(results[i].algo, results[i].workspaceSize));
    }
  }
  return algorithms;
}

std::optional<GemmAlgorithm> GemmPlan::configure(cublasLtHandle_t blas, const GemmAlgorithm& wanted) const {
  const GemmDescription& g = description_;
  cublasLtMatmulAlgo_t algorithm{};
  if (cublasLtMatmulAlgoInit(blas, g.compute, CUDA_R_32F, g.a.type, g.b.type, g.c.type, g.d.type, wanted.id,
                             &algorithm) != CUBLAS_STATUS_SUCCESS) {
    return std::nullopt;
  }
  const bool accepted = write(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, wanted.tile) &&
                        write(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, wanted.stages) &&
                        write(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, wanted.splitK) &&
                        write(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, wanted.scheme) &&
                        write(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, wanted.swizzle) &&
                        write(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, wanted.customOption) &&
                        write(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, wanted.innerShape) &&
                        write(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, wanted.cluster);
  return accepted ? checked(blas, algorithm) : std::nullopt;
}

std::optional<GemmAlgorithm> GemmPlan::checked(cublasLtHandle_t blas, const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(blas, operation_.get(), a_.get(), b_.get(), c_.get(), d_.get(), &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  return describe(algorithm, result.workspaceSize);
}

std::optional<GemmAlgorithm> GemmPlan::choose(cublasLtHandle_t blas, const AlgorithmWords& words) {
  cublasLtMatmulAlgo_t algorithm;
  std::memcpy(&algorithm, words.data(), sizeof(algorithm));
  const std::optional<GemmAlgorithm> found = checked(blas, algorithm);
  if (found) {
    algorithm_ = algorithm;
    workspace_ = found->workspace;
  }
  return found;
}

cublasStatus_t GemmPlan::run(cublasLtHandle_t blas, const GemmPointers& p, cudaStream_t stream) {
  require(algorithm_.has_value(), "no algorithm was chosen");
  require(p.workspace.bytes >= workspace_, "the workspace is smaller than its algorithm needs");
  cublasLtMatmulDesc_t operation = operation_.get();
  if (description_.scaleA) set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.scaleA);
  if (description_.scaleB) set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.scaleB);
  if (description_.bias) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  if (description_.aux) set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
  return cublasLtMatmul(blas, operation, p.alpha, p.a, a_.get(), p.b, b_.get(), p.beta, p.c, c_.get(), p.d, d_.get(),
                        &*algorithm_, p.workspace.data, workspace_, stream);
}

uint64_t GemmPlans::add(const GemmDescription& description) {
  auto plan = std::make_unique<GemmPlan>(description);
  plans_.emplace(++last_, std::move(plan));
  return last_;
}

GemmPlans& Context::gemmPlans() {
  if (!gemmPlans_) gemmPlans_ = std::make_shared<GemmPlans>();
  return *gemmPlans_;
}

GemmPlan& GemmPlans::at(uint64_t number) {
  const auto found = plans_.find(number);
  if (found == plans_.end()) throw Failure{"ARGUMENT", "gemm plan " + std::to_string(number) + " does not exist"};
  return *found->second;
}

}  // namespace lockstep
