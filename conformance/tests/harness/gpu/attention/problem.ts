/** The data of a large attention on the host, and its results on a backend. */
import type { Backend } from "../../../../../src/backends/backend.js";
import { attention, attentionBackward } from "../../../../../src/ops/attention/attention.js";
import type { AttentionOptions } from "../../../../../src/ops/attention/options.js";
import { tensor } from "../../../../../src/ops/create.js";
import { elementCount, type Shape } from "../../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../../src/tensor/tensor.js";
import { splitmix32 } from "../../../../arbitraries/random.js";
import { rowIndex } from "../../../../operations/attention/heads.js";
import type { LargeShape } from "./shapes.js";

export const DROPOUT = { probability: 0.1, seed: 12_345_678_901n, offset: 7n } as const;

/** The number of elements of the largest tensor. */
const MAX_ELEMENTS = 2 ** 25;
/** The offset between consecutive tensors in the pool, in elements. It is odd, so that no two tensors have equal rows. */
const STRIDE = 104_729;
const pools = new Map<LargeShape["dtype"], Uint16Array>();

/**
 * Codes of both signs from 2^-3 to 2: small enough that no key dominates the softmax of a row. Different tensors have different
 * codes.
 */
function poolCodes(dtype: LargeShape["dtype"], tensorNumber: number, count: number): Uint16Array {
  const pool = pools.get(dtype) ?? newPool(dtype);
  pools.set(dtype, pool);
  return pool.subarray(tensorNumber * STRIDE, tensorNumber * STRIDE + count);
}

function newPool(dtype: LargeShape["dtype"]): Uint16Array {
  const [mantissa, exponent, shift] = dtype === "bf16" ? [0x807f, 124, 7] : [0x83ff, 12, 10];
  const pool = new Uint16Array(MAX_ELEMENTS + 8 * STRIDE);
  const nextWord = splitmix32(1);
  for (let i = 0; i < pool.length; i++) {
    const word = nextWord();
    pool[i] = (word & mantissa) | ((exponent + ((word >>> 20) & 3)) << shift);
  }
  return pool;
}

export interface Problem {
  readonly shape: LargeShape;
  readonly q: Uint16Array;
  readonly k: Uint16Array;
  readonly v: Uint16Array;
  readonly grad: Uint16Array;
  /** [B, pages of a sequence]. */
  readonly pages: Int32Array | undefined;
  readonly keyLengths: readonly number[];
  /** [1, 1, Sq, Sk]. */
  readonly mask: Uint8Array | undefined;
  /** [1, H, Sq, Sk]. */
  readonly bias: Uint16Array | undefined;
  readonly slopes: Float32Array | undefined;
  readonly sinks: Float32Array | undefined;
}

export interface TensorShapes {
  readonly q: Shape;
  readonly k: Shape;
  readonly v: Shape;
  readonly out: Shape;
}

export function tensorShapes({
  layout,
  batch,
  queries,
  keys,
  heads,
  widths,
  pageLength,
}: LargeShape): TensorShapes {
  const shapeOf = (rows: number, count: number, width: number): Shape =>
    layout === "bshd" ? [batch, rows, count, width] : [rows, batch, count, width];
  const keyShape = (width: number): Shape =>
    pageLength ? [(batch * keys) / pageLength, pageLength, heads[1], width] : shapeOf(keys, heads[1], width);
  return {
    q: shapeOf(queries, heads[0], widths[0]),
    k: keyShape(widths[0]),
    v: keyShape(widths[1]),
    out: shapeOf(queries, heads[0], widths[1]),
  };
}

export function createProblem(shape: LargeShape): Problem {
  const { batch, queries, keys, heads, dtype, pageLength } = shape;
  const shapes = tensorShapes(shape);
  const tensorCodes = (number: number, dimensions: Shape) =>
    poolCodes(dtype, number, elementCount(dimensions));
  const pageCount = pageLength ? (batch * keys) / pageLength : 0;
  return {
    shape,
    q: tensorCodes(0, shapes.q),
    k: tensorCodes(1, shapes.k),
    v: tensorCodes(2, shapes.v),
    grad: tensorCodes(3, shapes.out),
    // 7 is coprime to the number of pages, so the page table is a permutation
    pages: pageLength ? Int32Array.from({ length: pageCount }, (_, i) => (7 * i + 3) % pageCount) : undefined,
    keyLengths: Array.from({ length: batch }, (_, b) => (pageLength ? keys - 37 * (b + 1) : keys)),
    mask: shape.mask
      ? Uint8Array.from(poolCodes(dtype, 4, queries * keys), (code) => Number(code % 4 === 0))
      : undefined,
    bias: shape.bias ? poolCodes("bf16", 5, heads[0] * queries * keys) : undefined,
    slopes: shape.alibi ? Float32Array.from({ length: heads[0] }, (_, h) => 2 ** -(h + 4)) : undefined,
    sinks: shape.sinks ? Float32Array.from({ length: heads[0] }, (_, h) => h / 4 - 1) : undefined,
  };
}

/** The codes of the results. The gradients are absent if the shape has no backward pass. */
export interface Results {
  readonly out: Uint16Array;
  readonly lse: Float32Array;
  readonly dq?: Uint16Array;
  readonly dk?: Uint16Array;
  readonly dv?: Uint16Array;
  readonly dbias?: Uint16Array;
}

/** Computes a whole attention on a backend. */
export function computeResults(backend: Backend, problem: Problem): Results {
  const { shape, mask, bias, slopes, sinks, pages, keyLengths } = problem;
  const { dtype, queries, keys, heads } = shape;
  const shapes = tensorShapes(shape);
  const [q, k, v] = (["q", "k", "v"] as const).map((name) =>
    tensor(backend, problem[name], shapes[name], dtype),
  ) as [Tensor, Tensor, Tensor];
  const { layout, causal, align, window, plan, softcap } = shape;
  const options: AttentionOptions = {
    ...{ layout, causal, align, window, plan, softcap, datapath: "hopper" },
    mask: mask && tensor(backend, mask, [1, 1, queries, keys], "u8"),
    bias: bias && tensor(backend, bias, [1, heads[0], queries, keys], "bf16"),
    alibiSlopes: slopes && tensor(backend, slopes),
    sinks: sinks && tensor(backend, sinks),
    dropout: shape.dropout ? DROPOUT : undefined,
  };
  const { out, lse } = attention(q, k, v, {
    ...options,
    ...(pages && {
      pages: tensor(backend, pages, [shape.batch, pages.length / shape.batch], "i32"),
      keyLengths: tensor(backend, Int32Array.from(keyLengths), undefined, "i32"),
    }),
  });
  const codes = (x: Tensor): Uint16Array => x.dataSync() as Uint16Array;
  const forward = { out: codes(out), lse: lse.dataSync() as Float32Array };
  if (!shape.backward) return forward;
  const grad = tensor(backend, problem.grad, shapes.out, dtype);
  const grads = attentionBackward(grad, q, k, v, out, lse, { ...options, biasGrad: bias !== undefined });
  return {
    ...forward,
    ...{ dq: codes(grads.dq), dk: codes(grads.dk), dv: codes(grads.dv) },
    ...(grads.dbias && { dbias: codes(grads.dbias) }),
  };
}

/** One row of a sequence and head. */
export function copyRow(
  { layout }: LargeShape,
  codes: Uint16Array,
  shape: Shape,
  [b, row, head]: readonly [b: number, row: number, head: number],
): Uint16Array {
  const start = rowIndex(layout, shape, b, row, head);
  return codes.subarray(start, start + (shape.at(-1) as number));
}

/** Copies the rows of several heads one after another: [rows][heads][width]. */
export function copyRows(
  { layout }: LargeShape,
  codes: Uint16Array,
  shape: Shape,
  {
    b,
    rows,
    heads,
  }: { readonly b: number; readonly rows: readonly number[]; readonly heads: readonly number[] },
): Uint16Array {
  const width = shape.at(-1) as number;
  const copy = new Uint16Array(rows.length * heads.length * width);
  let offset = 0;
  for (const row of rows)
    for (const head of heads) {
      const start = rowIndex(layout, shape, b, row, head);
      copy.set(codes.subarray(start, start + width), offset);
      offset += width;
    }
  return copy;
}

/** Keys first to end - 1 of a sequence and head, or their values: [keys][width]. */
export function copyKeys(
  { shape, pages }: Problem,
  codes: Uint16Array,
  dimensions: Shape,
  { b, head, first, end }: Readonly<Record<"b" | "head" | "first" | "end", number>>,
): Uint16Array {
  const rows = Array.from({ length: end - first }, (_, i) => first + i);
  if (!pages) return copyRows(shape, codes, dimensions, { b, rows, heads: [head] });
  const { pageLength = 1, batch } = shape;
  const pagesPerSequence = pages.length / batch;
  const physicalRows = rows.map(
    (row) =>
      (pages[b * pagesPerSequence + Math.floor(row / pageLength)] as number) * pageLength +
      (row % pageLength),
  );
  // consecutive pages form one sequence
  return copyRows(shape, codes, [1, ...dimensions.slice(1)], { b: 0, rows: physicalRows, heads: [head] });
}
