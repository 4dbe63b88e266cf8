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
import { copyKeys, copyRows, DROPOUT, type Problem, type Results, tensorShapes } from "./problem.js";
import type { LargeShape } from "./shapes.js";

/** The number of keys that are compared at once, and the number of queries of a step of the datapath's chain. */
export const KEYS = 16;

/** The queries that see any of the 16 keys, and the first key of the smaller attention. */
interface KeySubproblem {
  readonly queries: readonly number[];
  readonly firstKey: number;
}

/**
 * The smaller attention for the 16 keys from `firstKey` on. Its first query is a multiple of 16, because a chain of the datapath
 * begins a step every 16 queries. If the distance of a query and a key matters, the first key has the number of the first query.
 */
function subproblemAt(shape: LargeShape, firstKey: number): KeySubproblem {
  const [leftWindow] = shape.window;
  const rightWindow = shape.causal ? 0 : shape.window[1];
  const begin = rightWindow < 0 ? 0 : Math.max(0, Math.floor((firstKey - rightWindow) / KEYS) * KEYS);
  const end = leftWindow < 0 ? shape.queries : Math.min(shape.queries, firstKey + KEYS + leftWindow);
  return {
    queries: Array.from({ length: end - begin }, (_, i) => begin + i),
    firstKey: rightWindow >= 0 ? begin : firstKey,
  };
}

/** Selects the elements of a tensor [1, planes, Sq, Sk] at the queries and keys of the smaller attention. */
function selectPairs<T extends Uint8Array | Uint16Array>(
  pairs: T,
  { queries: rows, keys: columns }: LargeShape,
  planes: readonly number[],
  { queries, firstKey }: KeySubproblem,
  end: number,
): T {
  const offsets = planes.flatMap((plane) => queries.map((query) => (plane * rows + query) * columns));
  const width = end - firstKey;
  const copy = pairs.slice(0, offsets.length * width) as T;
  for (const [i, offset] of offsets.entries())
    copy.set(pairs.subarray(offset + firstKey, offset + end), i * width);
  return copy;
}

/** Compares dk and dv of the 16 keys that begin at `first`, a multiple of 16. */
export function checkKeys(
  reference: Backend,
  problem: Problem,
  results: Results,
  { b, keyHead, first }: Readonly<Record<"b" | "keyHead" | "first", number>>,
): void {
  using _scope = new Scope();
  const { shape, mask, bias, slopes, sinks } = problem;
  const { dtype, widths, heads, causal, window, softcap, plan } = shape;
  const shapes = tensorShapes(shape);
  const subproblem = subproblemAt(shape, first);
  const end = first + KEYS;
  const headsPerKeyHead = heads[0] / heads[1];
  const queryHeads = Array.from({ length: headsPerKeyHead }, (_, n) => keyHead * headsPerKeyHead + n);
  const rowCount = subproblem.queries.length;
  const uploadQueries = (codes: Uint16Array, dimensions: Shape): Tensor =>
    tensor(
      reference,
      copyRows(shape, codes, dimensions, { b, rows: subproblem.queries, heads: queryHeads }),
      [1, rowCount, headsPerKeyHead, dimensions.at(-1) as number],
      dtype,
    );
  const keyRange = { b, head: keyHead, first: subproblem.firstKey, end };
  const uploadKeys = (codes: Uint16Array, dimensions: Shape): Tensor =>
    tensor(
      reference,
      copyKeys(problem, codes, dimensions, keyRange),
      [1, end - subproblem.firstKey, 1, dimensions.at(-1) as number],
      dtype,
    );
  const lse = queryHeads.flatMap((head) =>
    subproblem.queries.map((query) => results.lse[(b * heads[0] + head) * shape.queries + query] as number),
  );
  const { dk, dv } = attentionBackward(
    uploadQueries(problem.grad, shapes.out),
    uploadQueries(problem.q, shapes.q),
    uploadKeys(problem.k, shapes.k),
    uploadKeys(problem.v, shapes.v),
    uploadQueries(results.out, shapes.out),
    tensor(reference, Float32Array.from(lse), [1, headsPerKeyHead, rowCount]),
    {
      ...{ causal, window, softcap, plan, datapath: "hopper" },
      scale: Math.fround(1 / Math.sqrt(widths[0])),
      mask:
        mask &&
        tensor(
          reference,
          selectPairs(mask, shape, [0], subproblem, end),
          [1, 1, rowCount, end - subproblem.firstKey],
          "u8",
        ),
      bias:
        bias &&
        tensor(
          reference,
          selectPairs(bias, shape, queryHeads, subproblem, end),
          [1, headsPerKeyHead, rowCount, end - subproblem.firstKey],
          "bf16",
        ),
      alibiSlopes:
        slopes &&
        tensor(
          reference,
          Float32Array.from(queryHeads, (head) => slopes[head] as number),
        ),
      sinks:
        sinks &&
        tensor(
          reference,
          Float32Array.from(queryHeads, (head) => sinks[head] as number),
        ),
      dropout: shape.dropout
        ? {
            ...DROPOUT,
            firstHead: b * heads[0] + keyHead * headsPerKeyHead,
            allHeads: shape.batch * heads[0],
          }
        : undefined,
    },
  );
  for (const [name, expectedGradient, actualGradient, width] of [
    ["dk", dk, results.dk, widths[0]],
    ["dv", dv, results.dv, widths[1]],
  ] as const) {
    const codes = download(expectedGradient).data as Uint16Array;
    const comparedRange = { b, head: keyHead, first, end };
    assertSame(
      `${name} of sequence ${b}, head ${keyHead}, keys ${first} to ${end - 1}`,
      new PlainTensor(
        dtype,
        [KEYS, width],
        copyKeys(problem, actualGradient as Uint16Array, name === "dk" ? shapes.k : shapes.v, comparedRange),
      ),
      new PlainTensor(dtype, [KEYS, width], codes.slice((first - subproblem.firstKey) * width)),
    );
  }
}
