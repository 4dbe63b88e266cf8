/** What tests of single products share: operands of reproducible noise, and bits to compare. */
import type { Backend } from "../../../src/backends/backend.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import type { DType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { codesOf } from "../../operations/gemm/arbitrary-codes.js";

/** A bell-shaped f32 matrix of reproducible values, on a backend. */
export function noise(backend: Backend, rows: number, columns: number, seed: number): Tensor<"f32"> {
  const { lines } = codesOf("f32", rows, 4 * columns, seed);
  const values = lines.flatMap((line) =>
    Array.from({ length: columns }, (_, i) =>
      line.slice(4 * i, 4 * i + 4).reduce((s, u) => s + (u / 2 ** 31 - 1), 0),
    ),
  );
  return tensor(backend, Float32Array.from(values), [rows, columns]);
}

/** Rounded to nearest, overflow to infinity. */
export const cast = (x: Tensor, format: DType): Tensor => encode(x, { format, overflow: "nonfinite" });

/** The codes of a tensor; those of f32 are its bits. */
export const bitsIn = (x: Tensor): number[] => {
  const data = x.dataSync();
  return Array.from(data instanceof Float32Array ? new Uint32Array(data.buffer) : data);
};
