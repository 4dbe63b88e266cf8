/** FP8 attention in plain numbers (numerics.md §10.9): whole matrices, whose values are rounded to the values of codes. */
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import { add, mul } from "../core/rational.js";
import { roundedIn, type WideName } from "../core/scale.js";
import { dropout } from "../elementwise/dropout.js";
import { softmax, softmaxBackward } from "../rows/softmax.js";
import { type Matrix, ofRows, rowsOf } from "./matrix.js";
import { product, wideOperand } from "./products.js";
import { sums } from "./sums.js";

/** The tensors that have a quantizer. */
export type QuantizedName = "qkv" | "o" | "s" | "dqkv" | "do" | "dp";

/** Returns the values of the codes of tensors that share a scale, rounded to `type`. */
export type Rounding = (name: QuantizedName, tensors: readonly Matrix[], type: WideName) => readonly Matrix[];

/** The sizes of an attention. */
export interface QuantizedSizes {
  readonly batch: number;
  readonly heads: number;
  readonly groups: number;
  readonly queries: number;
  readonly keys: number;
}

/** An attention of q [B * H * Sq, D], k [B * G * Sk, D] and v [B * G * Sk, V], one head after the other. */
export interface QuantizedTask extends QuantizedSizes {
  readonly q: Matrix;
  readonly k: Matrix;
  readonly v: Matrix;
  readonly family: DatapathFamily;
  readonly scale: number;
  /** Whether query i of a head sees key j. */
  readonly isVisible: (b: number, h: number, i: number, j: number) => boolean;
  /** The bias of a pair, and the extents of its first two dimensions: 1, or the number of sequences or heads. */
  readonly bias?:
    | {
        readonly elementAt: (b: number, h: number, i: number, j: number) => number;
        readonly extents: readonly [number, number];
      }
    | undefined;
  readonly biasBeforeScale?: boolean | undefined;
  /** What ALiBi adds to a pair. */
  readonly alibi?: ((b: number, h: number, i: number, j: number) => number) | undefined;
  /** A logit for each head. */
  readonly sinks?: readonly number[] | undefined;
  readonly dropout?: HeadsDropout | undefined;
}

/** The dropout of heads that are divided evenly into `parts`, 1 by default, each with its own draws. */
export interface HeadsDropout {
  readonly probability: number;
  readonly seed: bigint;
  readonly offset: bigint;
  readonly parts?: number | undefined;
}

export interface QuantizedResult {
  /** [B * Sq, H * V], of the values of codes. */
  readonly out: Matrix;
  /**
   * The gradients from the gradient of `out`. The gradients of q, k and v have the shapes of these. `unused` are further rows of
   * the gradient, which belong to no sequence.
   */
  readonly backward: (
    grad: Matrix,
    unused?: Matrix,
  ) => {
    readonly dq: Matrix;
    readonly dk: Matrix;
    readonly dv: Matrix;
    /** In the extents of the bias, f32 before its rounding. */
    readonly dbias: readonly number[] | undefined;
    readonly dsinks: readonly number[] | undefined;
  };
}

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

/** The rows of one item. */
function item(x: Matrix, n: number, rows: number): Matrix {
  const [, columns] = x.shape;
  return { ...x, shape: [rows, columns], data: x.data.slice(n * rows * columns, (n + 1) * rows * columns) };
}

function stacked(items: readonly Matrix[], columns: number, dtype: WideName): Matrix {
  return ofRows(items.flatMap(rowsOf), columns, dtype);
}

/** The product of a layout, times alpha, rounded to `type`. */
function multiply(
  { family }: QuantizedTask,
  [a, b]: readonly [Matrix, Matrix],
  layout: "TN" | "NN" | "NT",
  { alpha = 1, type = a.dtype }: { readonly alpha?: number; readonly type?: WideName } = {},
): Matrix {
  const lines = [
    wideOperand(a, layout === "TN" ? "rowwise" : "columnwise"),
    wideOperand(b, layout === "NT" ? "columnwise" : "rowwise"),
  ] as const;
  const ownFamily = a.dtype === "f32" && family !== "exact" ? "fp32" : family;
  const out = product(...lines, { family: ownFamily, split: false });
  return ofRows(
    out.map((row) => row.map((acc) => mul(acc, alpha) + 0)),
    lines[0].lines.length,
    type,
  );
}

/** Applies `f` to the elements of [B * H * Sq, columns]. */
function pairs(
  { batch, heads, queries }: QuantizedSizes,
  columns: number,
  f: (b: number, h: number, i: number, j: number) => number,
): number[][] {
  return range(batch).flatMap((b) =>
    range(heads).flatMap((h) => range(queries).map((i) => range(columns).map((j) => f(b, h, i, j)))),
  );
}

/** Rearranges [B * H * Sq, V] to [B * Sq, H * V], or the reverse if `inverse` is true. */
function regrouped(x: Matrix, { batch, heads, queries }: QuantizedSizes, inverse: boolean): Matrix {
  const width = inverse ? x.shape[1] / heads : x.shape[1];
  const data = new Float32Array(x.data.length);
  for (const b of range(batch))
    for (const h of range(heads))
      for (const i of range(queries))
        for (const d of range(width)) {
          const byHead = ((b * heads + h) * queries + i) * width + d;
          const byRow = ((b * queries + i) * heads + h) * width + d;
          data[inverse ? byHead : byRow] = x.data[inverse ? byRow : byHead] as number;
        }
  const shape = inverse ? [batch * heads * queries, width] : [batch * queries, heads * width];
  return { data, shape: shape as [number, number], dtype: x.dtype };
}

/** The dropout of elements [B, H, Sq, Sk]. Each part of the heads draws by its own elements. */
function droppedHeads(
  x: readonly number[],
  { batch, heads, queries, keys }: QuantizedSizes,
  { parts = 1, offset, ...draws }: HeadsDropout,
): number[] {
  const ownHeads = heads / parts;
  const size = ownHeads * queries * keys;
  const items = range(batch * parts);
  const dropped = range(parts).map((part) => {
    const elements = items
      .filter((n) => n % parts === part)
      .flatMap((n) => x.slice(n * size, (n + 1) * size));
    return dropout(elements, { ...draws, offset: offset + (BigInt(part * ownHeads) << 32n) });
  });
  return items.flatMap((n) => {
    const b = Math.floor(n / parts);
    return (dropped[n % parts] as number[]).slice(b * size, (b + 1) * size);
  });
}

export function quantizedAttention(task: QuantizedTask, round: Rounding): QuantizedResult {
  const { batch, heads, groups, queries, keys, scale, bias, sinks, isVisible } = task;
  const { dtype } = task.q;
  const items = range(batch * groups);
  // the heads of a group are the rows of one product
  const rows = (heads / groups) * queries;
  const alpha = bias && task.biasBeforeScale ? 1 : scale;
  const [q, k, v] = round("qkv", [task.q, task.k, task.v], dtype) as [Matrix, Matrix, Matrix];
  const ofItem = (x: Matrix, n: number) => item(x, n, x === k || x === v ? keys : rows);

  const scores = items.flatMap((n) =>
    rowsOf(multiply(task, [ofItem(k, n), ofItem(q, n)], "TN", { alpha, type: "f32" })),
  );
  const z = pairs(task, keys, (b, h, i, j) => {
    let s = scores[(b * heads + h) * queries + i]?.[j] as number;
    if (bias) s = add(s, bias.elementAt(b, h, i, j));
    if (bias && task.biasBeforeScale) s = mul(s, scale);
    if (task.alibi) s = add(s, task.alibi(b, h, i, j));
    return isVisible(b, h, i, j) ? s : Number.NEGATIVE_INFINITY;
  });
  const columns = sinks ? keys + 1 : keys;
  const shares = z.map((row, n) => {
    const rowWithSink = sinks ? [...row, sinks[Math.floor(n / queries) % heads] as number] : row;
    const p = softmax(rowWithSink, columns).map((x) => roundedIn(x, dtype));
    return !sinks && rowWithSink.every((x) => x === Number.NEGATIVE_INFINITY) ? p.map(() => 0) : p;
  });
  const drop = (x: readonly (readonly number[])[], type: WideName): Matrix => {
    const flat = x.flatMap((row) => row.slice(0, keys));
    const keptOutput = task.dropout ? droppedHeads(flat, task, task.dropout) : flat;
    return ofRows(
      x.map((_, n) => keptOutput.slice(n * keys, (n + 1) * keys)),
      keys,
      type,
    );
  };
  const [p] = round("s", [drop(shares, dtype)], dtype) as [Matrix];
  const outputs = items.map((n) => multiply(task, [ofItem(v, n), item(p, n, rows)], "NN"));
  const [out] = round("o", [regrouped(stacked(outputs, v.shape[1], dtype), task, false)], dtype) as [Matrix];

  return {
    out,
    backward: (grad, unused) => {
      const [rounded] = round("do", unused ? [grad, unused] : [grad], dtype) as [Matrix];
      const dout = regrouped(rounded, task, true);
      const own = (n: number): Matrix => item(dout, n, rows);
      const dv = items.map((n) => multiply(task, [own(n), item(p, n, rows)], "NT"));
      const dp = items.flatMap((n) => rowsOf(multiply(task, [ofItem(v, n), own(n)], "TN", { type: "f32" })));
      const keptGradient = rowsOf(drop(dp, "f32"));
      const visiblePairs = pairs(task, keys, (b, h, i, j) =>
        isVisible(b, h, i, j) ? (keptGradient[(b * heads + h) * queries + i]?.[j] as number) : 0,
      );
      const dz = visiblePairs.map((row, n) =>
        softmaxBackward(sinks ? [...row, 0] : row, shares[n] as number[], columns),
      );
      const scored = ofRows(
        dz.map((row) => row.slice(0, keys)),
        keys,
        "f32",
      );
      const [ds] = round("dp", [scored], dtype) as [Matrix];
      const factor =
        alpha === scale
          ? ds
          : ofRows(
              rowsOf(ds).map((row) => row.map((x) => mul(x, scale))),
              keys,
              dtype,
            );
      const dq = items.map((n) => multiply(task, [ofItem(k, n), item(factor, n, rows)], "NN", { alpha }));
      const dk = items.map((n) => multiply(task, [ofItem(q, n), item(factor, n, rows)], "NT", { alpha }));
      const widths = [q.shape[1], k.shape[1], v.shape[1]];
      const wide = [dq, dk, dv].map((headGrads, i) => stacked(headGrads, widths[i] as number, dtype));
      const [roundedQ, roundedK, roundedV] = round("dqkv", wide, dtype) as [Matrix, Matrix, Matrix];
      const shape = [batch, heads, queries, keys];
      const axes = bias ? [0, 1].filter((axis) => bias.extents[axis] !== shape[axis]) : [];
      const last = dz.map((row) => row[keys] as number);
      return {
        ...{ dq: roundedQ, dk: roundedK, dv: roundedV },
        dbias: bias && (axes.length > 0 ? sums(factor.data, shape, axes).values : [...factor.data]),
        dsinks: sinks && sums(last, [batch, heads, queries], [0, 2]).values,
      };
    },
  };
}
