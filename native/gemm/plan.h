// One prepared cuBLASLt product: descriptors, layouts, the algorithm, and how many bytes each operand has. cuBLASLt is
// column-major: D [m, n] = op(A) op(B), which is the row-major product W X^T read the other way round.
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

// A matrix as it is stored: `rows` contiguous elements, `columns` of them `pitch` elements apart, `batch` times.
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
  // alpha and beta lie on the device.
  bool deviceScalars;
  std::optional<cublasLtMatmulMatrixScale_t> scaleA;
  std::optional<cublasLtMatmulMatrixScale_t> scaleB;
  std::optional<cudaDataType_t> bias;
  // GELU in the epilogue, and its argument of this type, m to a row.
  std::optional<cudaDataType_t> aux;
};

using AlgorithmWords = std::array<uint32_t, sizeof(cublasLtMatmulAlgo_t) / sizeof(uint32_t)>;

// A configured algorithm, as cuBLASLt reads it back.
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

// What a search may find.
struct GemmSearch {
  int count;
  // A mask of cublasLtReductionScheme_t.
  uint32_t schemes;
  uint64_t workspace;
  // What the addresses of A and B are multiples of.
  uint32_t alignment;
};

// Device memory of one product. Null where the description has none.
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
  // On the host or the device, as described.
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
  // Throws Failure ARGUMENT for sizes that do not fit together and types that are unknown.
  explicit GemmPlan(const GemmDescription& description);

  // What cuBLASLt proposes, best first; nothing where it supports no such product.
  std::vector<GemmAlgorithm> search(cublasLtHandle_t blas, const GemmSearch& search) const;
  // An algorithm of these attributes, where there is one for this product.
  std::optional<GemmAlgorithm> configure(cublasLtHandle_t blas, const GemmAlgorithm& wanted) const;
  // Computes by the algorithm of these words from now on, where it is one for this product.
  std::optional<GemmAlgorithm> choose(cublasLtHandle_t blas, const AlgorithmWords& words);
  // Throws Failure ARGUMENT where no algorithm was chosen, or it needs more workspace than there is.
  cublasStatus_t run(cublasLtHandle_t blas, const GemmPointers& pointers, cudaStream_t stream);

  const GemmDescription& description() const { return description_; }
  // Bytes that a product touches.
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

// The plans of one context, by numbers that are never used again.
class GemmPlans {
 public:
  uint64_t add(const GemmDescription& description);
  // Throws Failure ARGUMENT for a number that stands for none.
  GemmPlan& at(uint64_t number);
  void remove(uint64_t number) { plans_.erase(number); }

 private:
  std::unordered_map<uint64_t, std::unique_ptr<GemmPlan>> plans_;
  uint64_t last_ = 0;
};

}  // namespace lockstep
