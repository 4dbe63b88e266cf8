/** Multi-head attention, and the rearrangements of rows before and after it, as functions on a tape. */
import type { DatapathFamily } from "../../../src/formats/datapath.js";
import { attention } from "../attention/attention.js";
import { attentionBackward } from "../attention/backward.js";
import type { HeadTask } from "../attention/scores.js";
import { productRule } from "../gemm/datapath.js";
import { laneSum } from "../rows/norm.js";
import { type Matrix, matrix, ofRow } from "./matrix.js";
import { type Tape, type Value, wideOf } from "./tape.js";

/** The rows and heads of an attention. */
export interface HeadsModel {
  readonly layout: "sbhd" | "bshd";
  readonly batch: number;
  readonly length: number;
  readonly heads: number;
  /** The number of heads of keys and values. */
  readonly groups: number;
  readonly width: number;
}

/** The options of an attention. */
export interface AttentionModel extends HeadsModel {
  readonly family: DatapathFamily;
  readonly causal: boolean;
  readonly window: readonly [left: number, right: number];
  readonly softcap: number | undefined;
  readonly dropout:
    | { readonly probability: number; readonly seed: bigint; readonly offset: bigint }
    | undefined;
}

/** A matrix whose elements are elements of x, each at most once. Elements that are left out have the gradient 0. */
export function pickRows(
  tape: Tape,
  x: Value,
  shape: readonly [rows: number, columns: number],
  source: (row: number, column: number) => number,
): Value {
  const { data, dtype, shape: oldShape } = x.wide;
  const result = matrix(shape, dtype, (i, j) => data[source(i, j)] as number);
  return tape.one([x], result, (grad) => {
    const { data: gradData, dtype: type } = wideOf(grad);
    const out = new Float32Array(oldShape[0] * oldShape[1]);
    for (let i = 0; i < shape[0]; i++)
      for (let j = 0; j < shape[1]; j++) out[source(i, j)] = gradData[i * shape[1] + j] as number;
    return [{ data: out, shape: oldShape, dtype: type }];
  });
}

/**
 * The heads of each tensor of a projection's result [rows, features] as rows [rows * heads, width]. A group has `shares[n]` heads
 * of tensor n. The heads of a group are together if `interleaved`; otherwise all heads of a tensor are.
 */
export function splitHeads(
  tape: Tape,
  x: Value,
  { groups, width }: Pick<HeadsModel, "groups" | "width">,
  interleaved: boolean,
  shares: readonly number[],
): readonly Value[] {
  const [rows, features] = x.wide.shape;
  const total = shares.reduce((sum, share) => sum + share, 0);
  let first = 0;
  return shares.map((share) => {
    const [begin, heads] = [first, share * groups];
    first += share;
    const columnOf = (head: number): number =>
      interleaved
        ? (Math.floor(head / share) * total + begin + (head % share)) * width
        : (begin * groups + head) * width;
    return pickRows(
      tape,
      x,
      [rows * heads, width],
      (i, d) => Math.floor(i / heads) * features + columnOf(i % heads) + d,
    );
  });
}

/** Makes the heads of each row its columns again: [rows * heads, width] becomes [rows, heads * width]. */
export function joinedHeads(tape: Tape, x: Value, heads: number): Value {
  const [rows, width] = x.wide.shape;
  return pickRows(tape, x, [rows / heads, heads * width], (i, j) => i * heads * width + j);
}

function createTask(model: AttentionModel, q: Matrix, k: Matrix, v: Matrix, sinks: Matrix | undefined) {
  const { layout, batch, length, heads, groups, width, family, dropout, softcap } = model;
  const { dtype } = q;
  const serving =
    dtype === "f32" ? undefined : productRule(family, { format: dtype }, { format: dtype }, false);
  const rule = serving && typeof serving.rule !== "string" ? serving.rule : "fp32";
  /** The row of a head at a position of sequence b. */
  const indexOf = (b: number, position: number, head: number, count: number): number =>
    (layout === "sbhd" ? position * batch + b : b * length + position) * count + head;
  const headRows = (x: Matrix, b: number, head: number, count: number): number[][] =>
    Array.from({ length }, (_, i) => {
      const first = indexOf(b, i, head, count) * width;
      return [...x.data.subarray(first, first + width)];
    });
  const taskOf = (b: number, head: number): HeadTask => {
    const keyHead = Math.floor((head * groups) / heads);
    return {
      q: headRows(q, b, head, heads),
      k: headRows(k, b, keyHead, groups),
      v: headRows(v, b, keyHead, groups),
      ...{ rule, type: dtype, scale: Math.fround(1 / Math.sqrt(width)), blockKeys: 128, splitKeys: 0 },
      ...{ align: "start" as const, causal: model.causal, window: model.window, softcap },
      sink: sinks?.data[head],
      dropout: dropout && { ...dropout, head: BigInt(b * heads + head) },
    };
  };
  return { of: taskOf, at: indexOf, rowsAt: headRows };
}

/** Writes rows of a head to a matrix of all heads. */
function write(x: Float32Array, rows: readonly (readonly number[])[], rowIndex: (i: number) => number): void {
  for (const [i, row] of rows.entries()) x.set(row, rowIndex(i) * row.length);
}

/**
 * Attention of q [rows * heads, width] to k and v [rows * groups, width]. `sinks` is a row with a logit for each head. Everything
 * has the type of q.
 */
export function attend(
  tape: Tape,
  [q, k, v]: readonly [Value, Value, Value],
  model: AttentionModel,
  sinks: Value | undefined,
): Value {
  const { batch, heads, groups } = model;
  const { dtype, shape } = q.wide;
  const tasks = createTask(model, q.wide, k.wide, v.wide, sinks?.wide);
  const pairs = Array.from({ length: batch * heads }, (_, n) => [Math.floor(n / heads), n % heads] as const);
  const results = pairs.map(([b, head]) => attention(tasks.of(b, head)));
  const out = new Float32Array(shape[0] * shape[1]);
  for (const [n, [b, head]] of pairs.entries())
    write(out, results[n]?.out ?? [], (i) => tasks.at(b, i, head, heads));
  const inputs = [q, k, v, ...(sinks ? [sinks] : [])];
  return tape.one(inputs, { data: out, shape, dtype }, (grad) => {
    const wide = wideOf(grad);
    const [dq, dk, dv] = [q, k, v].map((x) => new Float32Array(x.wide.data.length)) as [
      Float32Array,
      Float32Array,
      Float32Array,
    ];
    const terms = Array.from({ length: heads }, (): number[] => []);
    for (let b = 0; b < batch; b++)
      for (let keyHead = 0; keyHead < groups; keyHead++) {
        const members = Array.from({ length: heads / groups }, (_, n) => (keyHead * heads) / groups + n);
        const grads = attentionBackward(
          members.map((head) => ({
            ...tasks.of(b, head),
            grad: tasks.rowsAt(wide, b, head, heads),
            out: results[b * heads + head]?.out ?? [],
            lse: results[b * heads + head]?.lse ?? [],
          })),
        );
        for (const [n, head] of members.entries()) {
          write(dq, grads.dq[n] ?? [], (i) => tasks.at(b, i, head, heads));
          terms[head]?.push(...(grads.sinkTerms[n] ?? []));
        }
        write(dk, grads.dk, (i) => tasks.at(b, i, keyHead, groups));
        write(dv, grads.dv, (i) => tasks.at(b, i, keyHead, groups));
      }
    const gradients = [dq, dk, dv].map((data, n) => ({
      data,
      shape: ([q, k, v][n] as Value).wide.shape,
      dtype,
    }));
    return sinks
      ? [
          ...gradients,
          ofRow(
            terms.map((row) => -laneSum(row)),
            "f32",
          ),
        ]
      : gradients;
  });
}
