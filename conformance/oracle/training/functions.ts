/** A model of differentiable functions: sums, activations, embeddings, attention, losses. */
import { embeddingBackward, embedding as rowsById } from "../rows/embedding.js";
import { crossEntropy as crossEntropyRow, mse as mseRow } from "../rows/loss.js";
import { countUnmasked, softmax, softmaxBackward } from "../rows/softmax.js";
import { type Act, activate, activateBackward } from "./layers.js";
import type { Run } from "./linear.js";
import { cast, columnSums, type Matrix, mapMatrix, matrix, ofRows, rowsOf, sum } from "./matrix.js";
import { product, wideOperand } from "./products.js";
import { type Passed, type Tape, type Value, wideOf } from "./tape.js";

export function add(tape: Tape, x: Value, y: Value): Value {
  const { dtype } = y.wide;
  return tape.one([x, y], sum(x.wide, y.wide), (grad) => [grad, cast(wideOf(grad), dtype)]);
}

export function activation(tape: Tape, x: Value, act: Act): Value {
  const h = x.wide;
  const out = cast(activate(h, act), h.dtype);
  return tape.one([x], out, (grad) => [cast(activateBackward(wideOf(grad), h, act), h.dtype)]);
}

export function embedding(tape: Tape, table: Value, ids: readonly number[]): Value {
  const { shape, dtype } = table.wide;
  const out = ofRows(rowsById(rowsOf(table.wide), shape[1], ids), shape[1], dtype);
  return tape.one([table], out, (grad) => [
    ofRows(embeddingBackward(rowsOf(wideOf(grad)), shape[1], ids, shape[0]), shape[1], wideOf(grad).dtype),
  ]);
}

export interface AttentionModel {
  readonly batch: number;
  readonly heads: number;
  readonly causal: boolean;
}

/** Attention of qkv [batch * length, 3 * heads * depth]: softmax(q·kᵀ / √depth)·v for each head, concatenated. */
export function attention(run: Run, tape: Tape, x: Value, { batch, heads, causal }: AttentionModel): Value {
  const qkv = x.wide;
  const { dtype } = qkv;
  const [rows, features] = qkv.shape;
  const [length, depth] = [rows / batch, features / (3 * heads)];
  const scale = Math.fround(1 / Math.sqrt(depth));
  const family = dtype === "f32" && run.family !== "exact" ? "fp32" : run.family;
  const part = (source: Matrix, projection: number, item: number, head: number): Matrix =>
    matrix([length, depth], dtype, (i, j) => {
      const column = projection * heads * depth + head * depth + j;
      return source.data[(item * length + i) * source.shape[1] + column] as number;
    });
  const form = (a: Matrix, b: Matrix, layout: "TN" | "NN" | "NT", columns: number, type = dtype): Matrix =>
    ofRows(
      product(
        wideOperand(a, layout === "TN" ? "rowwise" : "columnwise"),
        wideOperand(b, layout === "NT" ? "columnwise" : "rowwise"),
        { family, split: false },
      ),
      columns,
      type,
    );
  const unmaskedCount = (i: number): number => countUnmasked(i, [length, length], causal);
  const items = Array.from({ length: batch * heads }, (_, n) => {
    const [item, head] = [Math.floor(n / heads), n % heads];
    const [q, k, v] = [0, 1, 2].map((projection) => part(qkv, projection, item, head)) as [
      Matrix,
      Matrix,
      Matrix,
    ];
    const scores = rowsOf(form(k, q, "TN", length, "f32"));
    const p = ofRows(
      scores.map((row, i) => softmax(row, unmaskedCount(i), scale)),
      length,
      dtype,
    );
    return { item, head, q, k, v, p, out: form(v, p, "NN", depth) };
  });
  const writeElements = (
    shape: readonly [number, number],
    elementOf: (n: number, projection: number) => Matrix,
  ): Matrix =>
    matrix(shape, dtype, (row, column) => {
      const [item, i] = [Math.floor(row / length), row % length];
      const [projection, offset] = [Math.floor(column / (heads * depth)), column % (heads * depth)];
      const head = Math.floor(offset / depth);
      return elementOf(item * heads + head, projection).data[i * depth + (offset % depth)] as number;
    });
  const result = writeElements([rows, heads * depth], (n) => items[n]?.out as Matrix);
  return tape.one([x], result, (grad) => {
    const wide = wideOf(grad);
    const gradients = items.map(({ item, head, q, k, v, p }) => {
      const dout = part(wide, 0, item, head);
      const dv = form(dout, p, "NT", depth);
      const dp = rowsOf(form(v, dout, "TN", length, "f32"));
      const probabilities = rowsOf(p);
      const ds = ofRows(
        dp.map((row, i) => softmaxBackward(row, probabilities[i] as number[], unmaskedCount(i), scale)),
        length,
        dtype,
      );
      return [form(k, ds, "NN", depth), form(q, ds, "NT", depth), dv] as const;
    });
    return [writeElements(qkv.shape, (n, projection) => gradients[n]?.[projection] as Matrix)];
  });
}

/** The mean of the losses of all rows, f32 [1], and the factor of each loss in its gradient. */
function mean(
  tape: Tape,
  x: Value,
  losses: readonly number[],
  rowGradient: (row: number, grad: number) => number[],
): Value {
  const { shape, dtype } = x.wide;
  const share = Math.fround(1 / losses.length);
  const column = ofRows(
    losses.map((loss) => [loss]),
    1,
    "f32",
  );
  const total = mapMatrix(columnSums(column, "f32"), (value) => value * share);
  return tape.one([x], total, (grad: Passed) => {
    const each = Math.fround((wideOf(grad).data[0] as number) * share);
    return [
      ofRows(
        losses.map((_, row) => rowGradient(row, each)),
        shape[1],
        dtype,
      ),
    ];
  });
}

export function crossEntropyLoss(
  tape: Tape,
  x: Value,
  targets: readonly number[],
  options: { readonly smoothing?: number; readonly ignore?: number },
): Value {
  const rows = rowsOf(x.wide).map((row, i) => crossEntropyRow(row, targets[i] as number, options));
  return mean(
    tape,
    x,
    rows.map(({ loss }) => loss),
    (row, grad) => rows[row]?.dx(grad) as number[],
  );
}

export function mseLoss(tape: Tape, x: Value, target: Matrix): Value {
  const targets = rowsOf(target);
  const rows = rowsOf(x.wide).map((row, i) => mseRow(row, targets[i] as number[]));
  return mean(
    tape,
    x,
    rows.map(({ loss }) => loss),
    (row, grad) => rows[row]?.dx(grad) as number[],
  );
}
