/** Batches of f32 products without TF32: cuBLAS's kernels of CUDA cores. */
import { ShapeError } from "../errors.js";
import { asBytes } from "../tensor/data.js";
import type { Call } from "./call.js";
import { toFloat32 } from "./conversions.js";
import { fusedSums, ONE_LANE } from "./fused-products.js";
import { NotModelled } from "./not-modelled.js";
import type { Value } from "./value.js";

/** The smallest number of rows and of columns that was compared. */
const MIN_COMPARED_LENGTH = 8;

/**
 * Each element is one chain of fma from +0 in ascending k. Throws `NotModelled` for one product, one row or one column, for which
 * cuBLAS has other kernels.
 */
export function f32Batch(call: Call, a: Value, b: Value): Value {
  const [batch = 0, rows = 0, depth = 0] = a.shape;
  const [otherBatch, otherDepth, columns = 0] = b.shape;
  if (a.shape.length !== 3 || b.shape.length !== 3 || otherBatch !== batch || otherDepth !== depth)
    throw new ShapeError(`batches [${a.shape}] and [${b.shape}]`);
  if (b.dtype !== "F32") throw new NotModelled(`products of ${a.dtype} and ${b.dtype}`);
  if (batch === 1 || rows === 1 || columns === 1)
    throw new NotModelled(`f32 products [${a.shape}] by [${b.shape}]`);
  const [x, w] = [toFloat32(call.backend, a), toFloat32(call.backend, b)];
  const out = new Float32Array(batch * rows * columns);
  for (let i = 0; i < batch; i++) {
    const matrices = {
      x: x.subarray(i * rows * depth, (i + 1) * rows * depth),
      w: w.subarray(i * depth * columns, (i + 1) * depth * columns),
      ...{ rows, depth, columns },
    };
    out.set(fusedSums(matrices, ONE_LANE), i * rows * columns);
  }
  return { dtype: "F32", shape: [batch, rows, columns], bytes: asBytes(out) };
}

/** Whether the matrices of an f32 batch have enough rows and columns: at least as many as the smallest compared matrices. */
export function isComparedF32Batch(a: Value, b: Value): boolean {
  return (a.shape[1] as number) >= MIN_COMPARED_LENGTH && (b.shape[2] as number) >= MIN_COMPARED_LENGTH;
}
