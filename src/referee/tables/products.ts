/** Rows of matrix products. */
import type { Call } from "../call.js";
import { groupedProduct, isComparedGroups, scaledGroupedProduct } from "../grouped.js";
import {
  addmmOptions,
  batchedProduct,
  hasComparedSize,
  isComparedBatch,
  mmOptions,
  type ProductOptions,
  productModel,
  scaledOptions,
  variesInOrder,
} from "../products.js";
import { computeRow, type OperatorRow, type OperatorRows, withWitness } from "./row.js";

/**
 * A row that the recorded calls in torch-operators/products.json and torch-h200-gemm.json confirmed, up to the size from which
 * cuBLASLt may split K.
 */
function comparedRow(row: OperatorRow, inputs: string): OperatorRow {
  return { ...withWitness(row, inputs), isCompared: hasComparedSize };
}

const PRODUCT = "a bf16 or f16 product on Hopper's tensor cores, without split-K; an f32 product by fma";

/** A row whose model is one product with these options. */
function productRow(
  parameters: string,
  definition: string,
  options: (call: Call) => ProductOptions,
): OperatorRow {
  return { ...computeRow(parameters, definition, productModel(options)), product: options, variesInOrder };
}

/** Rows of matrix products. */
export const PRODUCTS: OperatorRows = {
  "aten::mm": comparedRow(
    productRow("self mat2", PRODUCT, mmOptions),
    "50 products in bf16 and f16 of up to 1024x1024x1024, and 11 that cuBLASLt divides",
  ),
  "aten::mm.dtype": comparedRow(
    productRow("self mat2 out_dtype", PRODUCT, mmOptions),
    "30 products in bf16 and f16 with f32 results, and 5 that cuBLASLt divides",
  ),
  "aten::addmm": comparedRow(
    productRow(
      "self mat1 mat2",
      "as mm; a vector is the epilogue's bias, a matrix is multiplied by beta",
      addmmOptions,
    ),
    "35 products in bf16 and f16 with a bias or with beta and alpha, and 8 that cuBLASLt divides",
  ),
  "aten::bmm": {
    ...withWitness(
      computeRow("self mat2", "as mm for each matrix; in f32 one chain of fma", batchedProduct),
      "36 batches in bf16, f16 and f32 of 2 to 64 matrices of up to 512x512x512",
    ),
    isCompared: isComparedBatch,
  },
  "aten::_grouped_mm": {
    ...withWitness(
      computeRow("self mat2 offs bias out_dtype", "as mm for each group of rows", groupedProduct),
      "3 products of 2, 4 and 8 groups in bf16 of up to 2048x512x256",
    ),
    isCompared: isComparedGroups,
  },
  "aten::_scaled_grouped_mm": {
    ...withWitness(
      computeRow(
        "self mat2 scale_a scale_b offs bias scale_result out_dtype use_fast_accum",
        "an FP8 product on Hopper's tensor cores for each group of rows; (sum * scale_a) * scale_b",
        scaledGroupedProduct,
      ),
      "3 products of 2, 4 and 8 groups in e4m3 of up to 2048x512x256",
    ),
    isCompared: isComparedGroups,
  },
  "aten::_scaled_mm": comparedRow(
    productRow(
      "self mat2 scale_a scale_b bias scale_result out_dtype use_fast_accum",
      "an FP8 product on Hopper's tensor cores with scales per tensor, row or block",
      scaledOptions,
    ),
    "114 products with scales per tensor, row and block of up to 1024x1024x1024, and 4 that cuBLASLt divides",
  ),
};
