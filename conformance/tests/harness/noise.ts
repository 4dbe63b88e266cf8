/** Helpers for tests of single products: operands of reproducible noise, and codes as numbers. */
import type { Backend } from "../../../src/backends/backend.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import type { DType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { codesOf } from "../../operations/gemm/arbitrary-codes.js";

/** An f32 matrix of reproducible, approximately normal values. */
export function noise(backend: Backend, rows: number, columns: number, seed: number): Tensor<"f32"> {
  const { lines } = codesOf("f32", rows, 4 * columns, seed);
  const values = lines.flatMap((line) =>
    Array.from({ length: columns }, (_, i) =>
      line.slice(4 * i, 4 * i + 4).reduce((total, word) => total + (word / 2 ** 31 - 1), 0),
    ),
  );
  return tensor(backend, Float32Array.from(values), [rows, columns]);
}

/** Rounds to nearest; overflow gives infinity. */
export const cast = (x: Tensor, format: DType): Tensor => encode(x, { format, overflow: "nonfinite" });

/** The codes of a tensor; for f32 the bit patterns. */
export const codesOfTensor = (x: Tensor): number[] => {
  const data = x.dataSync();
  return Array.from(data instanceof Float32Array ? new Uint32Array(data.buffer) : data);
};
