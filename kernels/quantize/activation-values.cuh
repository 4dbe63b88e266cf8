// Computes the values of an activation, of a gated activation, or of the gradient of either, in registers. A thread
// computes four consecutive elements (a quad) of each of a few rows.
#pragma once

#include <type_traits>

#include "kernels/device/elements.cuh"
#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/curve-table.cuh"
#include "kernels/elementwise/gated.cuh"
#include "kernels/quantize/activation-quantize.gen.h"

namespace lockstep {

constexpr int kQuad = 4;
template <int height>
using Quads = float[height][kQuad];

// The number of parts of the result. The gradient of a gated activation has two parts, dA and dG, side by side. Every
// other result is one part.
template <bool gated, bool backward>
constexpr int kParts = gated && backward ? 2 : 1;

// Four elements of a row. If `packed` (the inputs are bf16 and rows are whole groups of four), the elements are
// converted only when they are used, so that no load has to wait for another.
template <bool packed>
struct Quad;

template <>
struct Quad<true> {
  uint2 bits;

  __device__ void load(const void* source, Wide, int64_t index, int64_t count) {
    bits = make_uint2(0, 0);
    if (count > 0) bits = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(source) + index);
  }
  __device__ float at(int i) const {
    const uint32_t pair = i < 2 ? bits.x : bits.y;
    return __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
  }
};

template <>
struct Quad<false> {
  float values[kQuad];

  __device__ void load(const void* source, Wide type, int64_t index, int64_t count) {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) values[i] = i < count ? loadElement(source, type, index + i) : 0.0f;
  }
  __device__ float at(int i) const { return values[i]; }
};

// The inputs of `height` rows, starting at `row`, in columns [column, column + 4) of each half.
template <bool gated, bool backward, bool packed, int height>
struct Inputs {
  Quad<packed> a[height];
  Quad<packed> g[gated ? height : 1];
  Quad<packed> grad[backward ? height : 1];

  __device__ void load(const GatedForm& p, int64_t row, int64_t column) {
    const int64_t pitch = gated ? 2 * p.columns : p.columns;
#pragma unroll
    for (int r = 0; r < height; ++r) {
      const int64_t count = row + r < p.rows ? p.columns - column : 0;
      const int64_t first = (row + r) * pitch + column;
      a[r].load(p.x, p.xType, first, count);
      if constexpr (gated) g[r].load(p.x, p.xType, first + p.columns, count);
      if constexpr (backward) grad[r].load(p.grad, p.gradType, (row + r) * p.columns + column, count);
    }
  }
};

// Evaluates the activation and its derivative at min(a, limit).
template <Activation kind>
struct Evaluated {
  const GatedForm& p;

  __device__ float value(float a) const { return activate(kind, p.alpha, atMost(a, p.limit)); }
  __device__ float derivative(float a) const { return differentiate(kind, p.alpha, atMost(a, p.limit)); }
};

// Reads the activation and its derivative at min(a, limit) from tables. For a gated gradient, the table of derivatives
// follows the table of values. Clears `inside` if a table does not cover `a`.
struct Tabled {
  const float* values;
  const float* derivatives;
  bool& inside;

  __device__ float value(float a) const { return values[entry(a)]; }
  __device__ float derivative(float a) const { return derivatives[entry(a)]; }
  // an index outside the table is clamped to the last entry
  __device__ uint32_t entry(float a) const { return min(tableEntry(a, inside), kTableEntries - 1); }
};

template <bool gated, bool backward, bool packed, int height, typename Curve>
__device__ inline void computeBy(Curve curve, const GatedForm& p, const Inputs<gated, backward, packed, height>& in,
                                 Quads<height> (&out)[kParts<gated, backward>]) {
#pragma unroll
  for (int r = 0; r < height; ++r) {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float a = in.a[r].at(i);
      if constexpr (gated && backward) {
        out[0][r][i] = a;
        out[1][r][i] = in.g[r].at(i);
        gatedGradients(p, curve.value(a), curve.derivative(a), in.grad[r].at(i), out[0][r][i], out[1][r][i]);
      } else if constexpr (gated) {
        out[0][r][i] = curve.value(a) * gateOf(p, in.g[r].at(i));
      } else if constexpr (backward) {
        out[0][r][i] = curve.derivative(a) * in.grad[r].at(i);
      } else {
        out[0][r][i] = curve.value(a);
      }
    }
  }
}

// Computes the values, from `tables` if that is not null. Elements outside the source get unspecified values.
template <bool gated, bool backward, bool packed, int height>
__device__ inline void compute(const float* tables, const GatedForm& p,
                               const Inputs<gated, backward, packed, height>& in,
                               Quads<height> (&out)[kParts<gated, backward>]) {
  if (tables != nullptr) {
    bool inside = true;
    computeBy(Tabled{tables, tables + (gated && backward ? kTableEntries : 0), inside}, p, in, out);
    if (inside) return;
  }
  switch (p.kind) {
    case Activation::kGelu:
      return computeBy(Evaluated<Activation::kGelu>{p}, p, in, out);
    case Activation::kRelu:
      return computeBy(Evaluated<Activation::kRelu>{p}, p, in, out);
    case Activation::kSrelu:
      return computeBy(Evaluated<Activation::kSrelu>{p}, p, in, out);
    case Activation::kSigmoid:
      return computeBy(Evaluated<Activation::kSigmoid>{p}, p, in, out);
    default:
      // silu and qgelu differ only in alpha
      return computeBy(Evaluated<Activation::kSilu>{p}, p, in, out);
  }
}

// Bytes of the tables that `compute` reads.
template <bool gated, bool backward>
constexpr uint32_t kTableBytes = kParts<gated, backward> * kTableEntries * sizeof(float);

// Fills the tables. All threads of the block must call it and synchronise afterwards.
template <bool gated, bool backward>
__device__ inline void fillTables(float* tables, const GatedForm& p) {
  if constexpr (!backward || gated) {
    fillTable(tables, [&](float a) { return activate(p.kind, p.alpha, atMost(a, p.limit)); });
  }
  if constexpr (backward) {
    float* derivatives = tables + (gated ? kTableEntries : 0);
    fillTable(derivatives, [&](float a) { return differentiate(p.kind, p.alpha, atMost(a, p.limit)); });
  }
}

// Calls `body` with two tags: whether the activation is gated, and whether the values are its gradient.
template <typename Body>
void withForm(const ActivationSource& source, Body body) {
  const bool backward = source.form.grad != nullptr;
  if (source.gated && backward) return body(std::true_type{}, std::true_type{});
  if (source.gated) return body(std::true_type{}, std::false_type{});
  if (backward) return body(std::false_type{}, std::true_type{});
  return body(std::false_type{}, std::false_type{});
}

// Whether a table pays off: the activation is evaluated in f64, and there are enough elements.
inline bool paysForTable(const GatedForm& p) { return inDouble(p.kind) && p.rows * p.columns >= kLeastForTable; }

// Whether all inputs are bf16, and the rows consist of whole groups of four elements.
inline bool isPacked(const GatedForm& p) {
  return p.xType == Wide::kBf16 && (p.grad == nullptr || p.gradType == Wide::kBf16) && p.columns % kQuad == 0;
}

}  // namespace lockstep
