/** A model of FP8 attention between heads as rows of matrices, as a function on a tape. */

import type { AttentionScales } from "./attention-scales.js";
import type { AttentionModel } from "./heads.js";
import type { Matrix } from "./matrix.js";
import { QuantizedModel } from "./quantized.js";
import { type QuantizedName, quantizedAttention } from "./quantized-attention.js";
import { type Passed, type Tape, type Value, wideOf } from "./tape.js";

/** What is quantized at the boundaries of attention, and the scales inside. */
export interface QuantizedHeads {
  readonly scales: AttentionScales;
  /** Whether the queries, keys and values are values of codes, whose gradients the caller quantizes. */
  readonly hasCodes: boolean;
  /** Whether the result is quantized. */
  readonly returnsCodes: boolean;
  /** The number of ranks that have a part of the heads. */
  readonly parts: number;
}

/** The values of codes. The gradient is quantized, and stays so if the layer before takes it. */
export function valuesOfCodes(tape: Tape, x: Value, scales: AttentionScales, takesCodes: boolean): Value {
  return tape.one([x], x.wide, (grad) => {
    const wide = wideOf(grad);
    const codes = new QuantizedModel({ x: wide, computed: false }, scales.spec("dqkv", [wide]));
    return [takesCodes ? codes : codes.wide(wide.dtype)];
  });
}

/** Moves rows: row i of the result is row `rowOf(i)` of x. */
function reordered(x: Matrix, rowOf: (i: number) => number): Matrix {
  const [rows, columns] = x.shape;
  const data = new Float32Array(x.data.length);
  for (let i = 0; i < rows; i++)
    data.set(x.data.subarray(rowOf(i) * columns, (rowOf(i) + 1) * columns), i * columns);
  return { ...x, data };
}

function inverse(count: number, rowOf: (i: number) => number): (i: number) => number {
  const to = new Map(Array.from({ length: count }, (_, i) => [rowOf(i), i]));
  return (i) => to.get(i) as number;
}

/** FP8 attention of q [rows * heads, width] to k and v [rows * groups, width], as [rows, heads * width]. */
export function attendQuantized(
  tape: Tape,
  [q, k, v]: readonly [Value, Value, Value],
  model: AttentionModel,
  sinks: Value | undefined,
  { scales, hasCodes, returnsCodes, parts }: QuantizedHeads,
): Value {
  const { layout, batch, length, heads, groups, width, window, dropout } = model;
  const rowAt = (b: number, i: number): number => (layout === "sbhd" ? i * batch + b : b * length + i);
  /** The row of position i of head h of sequence b, of n = (b, h, i). */
  const headRow = (count: number) => (n: number) => {
    const [b, h, i] = [Math.floor(n / (count * length)), Math.floor(n / length) % count, n % length];
    return rowAt(b, i) * count + h;
  };
  const row = (n: number): number => rowAt(Math.floor(n / length), n % length);
  const counts = [heads, groups, groups] as const;
  const byHead = [q, k, v].map((x, n) => reordered(x.wide, headRow(counts[n] as number)));
  let output: Passed | undefined;
  let isGradCoded = false;
  const round = scales.rounding();
  const [left, right] = window;
  const result = quantizedAttention(
    {
      ...{ batch, heads, groups, queries: length, keys: length, family: model.family },
      ...{ q: byHead[0] as Matrix, k: byHead[1] as Matrix, v: byHead[2] as Matrix },
      scale: Math.fround(1 / Math.sqrt(width)),
      isVisible: (_b, _h, i, j) =>
        !(model.causal && j > i) && (left < 0 || j >= i - left) && (right < 0 || j <= i + right),
      sinks: sinks && [...sinks.wide.data],
      dropout: dropout && { ...dropout, parts },
    },
    (name: QuantizedName, tensors, type) => {
      if (hasCodes && (name === "qkv" || name === "dqkv")) return tensors;
      if (name === "do" && isGradCoded) return tensors;
      if (name !== "o") return round(name, tensors, type);
      const [x] = tensors as [Matrix];
      const codes = new QuantizedModel(
        { x: reordered(x, inverse(x.shape[0], row)), computed: false },
        scales.spec(name, tensors),
      );
      output = returnsCodes ? codes : codes.wide(type);
      return tensors;
    },
  );
  return tape.one([q, k, v, ...(sinks ? [sinks] : [])], output as Passed, (grad) => {
    isGradCoded = grad instanceof QuantizedModel;
    const { dq, dk, dv, dsinks } = result.backward(reordered(wideOf(grad), row));
    const back = [dq, dk, dv].map((x, n) => reordered(x, inverse(x.shape[0], headRow(counts[n] as number))));
    if (!sinks) return back;
    const ofSinks: Matrix = { data: Float32Array.from(dsinks ?? []), shape: [1, heads], dtype: "f32" };
    return [...back, ofSinks];
  });
}
