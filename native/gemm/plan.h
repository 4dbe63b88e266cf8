// A prepared cuBLASLt product: descriptors, layouts, the algorithm, and the size of each operand. cuBLASLt is
// column-major. Its result D [m, n] = op(A) op(B) is the transpose of the row-major product X W^T if A = W and B = X.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "native/core/context.h"

namespace lockstep {

// A column-major matrix in memory. Each of the `columns` columns has `rows` contiguous elements and starts `pitch`
// elements after the one before. In a batch, each matrix starts `stride` elements after the one before.
struct MatrixLayout {
  cudaDataType_t type;
  uint64_t rows;
  uint64_t columns;
  uint64_t pitch;
  uint64_t stride = 0;
};

struct GemmDescription {
  uint64_t m;
  uint64_t n;
  uint64_t k;
  MatrixLayout a;
  MatrixLayout b;
  MatrixLayout c;
  MatrixLayout d;
  uint64_t batch = 1;
  bool transposeA;
  bool transposeB;
  cublasComputeType_t compute;
  bool fastAccumulation;
  // Whether alpha and beta are in device memory.
  bool deviceScalars;
  std::optional<cublasLtMatmulMatrixScale_t> scaleA;
  std::optional<cublasLtMatmulMatrixScale_t> scaleB;
  std::optional<cudaDataType_t> bias;
  // The type of the GELU argument that the epilogue stores, m elements per column of D. Nothing for a product without
  // GELU.
  std::optional<cudaDataType_t> aux;
};

using AlgorithmWords = std::array<uint32_t, sizeof(cublasLtMatmulAlgo_t) / sizeof(uint32_t)>;

// An algorithm and its attributes, as cuBLASLt reports them. `words` are the opaque bytes of cublasLtMatmulAlgo_t.
struct GemmAlgorithm {
  int32_t id = 0;
  uint32_t tile = 0;
  uint32_t stages = 0;
  int32_t splitK = 0;
  uint32_t scheme = 0;
  uint32_t swizzle = 0;
  uint32_t customOption = 0;
  uint16_t innerShape = 0;
  uint16_t cluster = 0;
  uint64_t workspace = 0;
  AlgorithmWords words{};
};

// Constraints of a search for algorithms.
struct GemmSearch {
  int count;
  // A mask of cublasLtReductionScheme_t values.
  uint32_t schemes;
  uint64_t workspace;
  // The alignment in bytes of the addresses of A and B.
  uint32_t alignment;
};

// The addresses of one product in device memory. A pointer is null if the description has no such operand.
struct GemmPointers {
  const void* a;
  const void* b;
  const void* c;
  void* d;
  const void* scaleA;
  const void* scaleB;
  const void* bias;
  void* aux;
  Workspace workspace;
  // alpha and beta are in device memory if the description has deviceScalars, else in host memory.
  const float* alpha;
  const float* beta;
};

template <auto destroy>
struct Destroy {
  template <typename T>
  void operator()(T* object) const {
    destroy(object);
  }
};

class GemmPlan {
 public:
  // Throws Failure ARGUMENT if a size is 0 or too large, sizes do not fit together, or a type is unknown.
  explicit GemmPlan(const GemmDescription& description);

  // Returns the algorithms that cuBLASLt proposes, best first; none if it does not support the product.
  std::vector<GemmAlgorithm> search(cublasLtHandle_t blas, const GemmSearch& search) const;
  // Returns an algorithm with these attributes, if there is one for this product.
  std::optional<GemmAlgorithm> configure(cublasLtHandle_t blas, const GemmAlgorithm& wanted) const;
  // Selects the algorithm whose opaque bytes are `words` for later runs, if it supports this product.
  std::optional<GemmAlgorithm> choose(cublasLtHandle_t blas, const AlgorithmWords& words);
  // Enqueues the product. Throws Failure ARGUMENT if no algorithm was selected, or if it needs more workspace than it
  // was given.
  cublasStatus_t run(cublasLtHandle_t blas, const GemmPointers& pointers, cudaStream_t stream);

  const GemmDescription& description() const { return description_; }
  // The number of bytes that the product accesses in a matrix or, in a batch, in all its matrices.
  uint64_t bytes(const MatrixLayout& layout) const;
  uint64_t scaleBytes(cublasLtMatmulMatrixScale_t mode, uint64_t lines) const;
  uint64_t biasBytes() const;
  uint64_t auxBytes() const;
  uint64_t workspaceBytes() const { return workspace_; }

 private:
  using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy<cublasLtMatmulDescDestroy>>;
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy<cublasLtMatrixLayoutDestroy>>;

  Layout layoutOf(const MatrixLayout& layout) const;
  std::optional<GemmAlgorithm> checked(cublasLtHandle_t blas, const cublasLtMatmulAlgo_t& algorithm) const;

  GemmDescription description_;
  Operation operation_;
  Layout a_;
  Layout b_;
  Layout c_;
  Layout d_;
  std::optional<cublasLtMatmulAlgo_t> algorithm_;
  uint64_t workspace_ = 0;
};

// The plans of one context. The number of a plan is never reused.
class GemmPlans {
 public:
  uint64_t add(const GemmDescription& description);
  // Throws Failure ARGUMENT if there is no plan with this number.
  GemmPlan& at(uint64_t number);
  void remove(uint64_t number) { plans_.erase(number); }

 private:
  std::unordered_map<uint64_t, std::unique_ptr<GemmPlan>> plans_;
  uint64_t last_ = 0;
};

}  // namespace lockstep
