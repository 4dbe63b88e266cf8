/**
 * Gradients of some keys of a large attention. They depend only on these keys and on the queries that see them, so the reference
 * computes a smaller attention with the same queries.
 */
import type { Backend } from "../../../../../src/backends/backend.js";
import { attentionBackward } from "../../../../../src/ops/attention/attention.js";
import { tensor } from "../../../../../src/ops/create.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import type { Shape } from "../../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../../src/tensor/tensor.js";
import { assertSame } from "../../../../values/difference.js";
import { download, PlainTensor } from "../../../../values/plain.js";
import { DROPOUT, keysOf, type Problem, type Results, rowsOf, shapesOf } from "./problem.js";
import type { LargeShape } from "./shapes.js";

/** The number of keys that are compared at once, and the number of queries of a step of the datapath's chain. */
export const KEYS = 16;

/** The queries that see a key from `first` on, and the first key of the smaller attention. */
interface Part {
  readonly queries: readonly number[];
  readonly firstKey: number;
}

/**
 * The first query is a multiple of 16, because a chain of the datapath begins a step every 16 queries. If the distance of a query
 * and a key matters, the first key has the number of the first query.
 */
function partOf(shape: LargeShape, first: number): Part {
  const [left] = shape.window;
  const right = shape.causal ? 0 : shape.window[1];
  const begin = right < 0 ? 0 : Math.max(0, Math.floor((first - right) / KEYS) * KEYS);
  const end = left < 0 ? shape.queries : Math.min(shape.queries, first + KEYS + left);
  return {
    queries: Array.from({ length: end - begin }, (_, i) => begin + i),
    firstKey: right >= 0 ? begin : first,
  };
}

/** The elements of a tensor [1, planes, Sq, Sk] at queries and keys of the smaller attention. */
function pairsOf<T extends Uint8Array | Uint16Array>(
  pairs: T,
  { queries: rows, keys: columns }: LargeShape,
  planes: readonly number[],
  { queries, firstKey }: Part,
  end: number,
): T {
  const lines = planes.flatMap((plane) => queries.map((query) => (plane * rows + query) * columns));
  const width = end - firstKey;
  const copy = pairs.slice(0, lines.length * width) as T;
  for (const [i, line] of lines.entries()) copy.set(pairs.subarray(line + firstKey, line + end), i * width);
  return copy;
}

/** Compares dk and dv of 16 keys from `first` on, a multiple of 16. */
export function checkKeys(
  reference: Backend,
  problem: Problem,
  results: Results,
  { b, keyHead, first }: Readonly<Record<"b" | "keyHead" | "first", number>>,
): void {
  using _scope = new Scope();
  const { shape, mask, bias, slopes, sinks } = problem;
  const { dtype, widths, heads, causal, window, softcap, plan } = shape;
  const shapes = shapesOf(shape);
  const part = partOf(shape, first);
  const end = first + KEYS;
  const group = heads[0] / heads[1];
  const members = Array.from({ length: group }, (_, n) => keyHead * group + n);
  const rowCount = part.queries.length;
  const queriesOn = (codes: Uint16Array, dimensions: Shape): Tensor =>
    tensor(
      reference,
      rowsOf(shape, codes, dimensions, { b, rows: part.queries, heads: members }),
      [1, rowCount, group, dimensions.at(-1) as number],
      dtype,
    );
  const span = { b, head: keyHead, first: part.firstKey, end };
  const keysOn = (codes: Uint16Array, dimensions: Shape): Tensor =>
    tensor(
      reference,
      keysOf(problem, codes, dimensions, span),
      [1, end - part.firstKey, 1, dimensions.at(-1) as number],
      dtype,
    );
  const lse = members.flatMap((head) =>
    part.queries.map((query) => results.lse[(b * heads[0] + head) * shape.queries + query] as number),
  );
  const { dk, dv } = attentionBackward(
    queriesOn(problem.grad, shapes.out),
    queriesOn(problem.q, shapes.q),
    keysOn(problem.k, shapes.k),
    keysOn(problem.v, shapes.v),
    queriesOn(results.out, shapes.out),
    tensor(reference, Float32Array.from(lse), [1, group, rowCount]),
    {
      ...{ causal, window, softcap, plan, datapath: "hopper" },
      scale: Math.fround(1 / Math.sqrt(widths[0])),
      mask:
        mask &&
        tensor(reference, pairsOf(mask, shape, [0], part, end), [1, 1, rowCount, end - part.firstKey], "u8"),
      bias:
        bias &&
        tensor(
          reference,
          pairsOf(bias, shape, members, part, end),
          [1, group, rowCount, end - part.firstKey],
          "bf16",
        ),
      alibiSlopes:
        slopes &&
        tensor(
          reference,
          Float32Array.from(members, (head) => slopes[head] as number),
        ),
      sinks:
        sinks &&
        tensor(
          reference,
          Float32Array.from(members, (head) => sinks[head] as number),
        ),
      dropout: shape.dropout
        ? { ...DROPOUT, firstHead: b * heads[0] + keyHead * group, allHeads: shape.batch * heads[0] }
        : undefined,
    },
  );
  for (const [name, expected, actual, width] of [
    ["dk", dk, results.dk, widths[0]],
    ["dv", dv, results.dv, widths[1]],
  ] as const) {
    const codes = download(expected).data as Uint16Array;
    const compared = { b, head: keyHead, first, end };
    assertSame(
      `${name} of sequence ${b}, head ${keyHead}, keys ${first} to ${end - 1}`,
      new PlainTensor(
        dtype,
        [KEYS, width],
        keysOf(problem, actual as Uint16Array, name === "dk" ? shapes.k : shapes.v, compared),
      ),
      new PlainTensor(dtype, [KEYS, width], codes.slice((first - part.firstKey) * width)),
    );
  }
}
