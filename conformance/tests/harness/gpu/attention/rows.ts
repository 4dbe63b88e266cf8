/**
 * Rows of a large attention, computed by the reference one by one. The bits of a row depend only on its query and its visible
 * keys, so an attention of one query and the keys up to the last visible one gives the row.
 */
import type { Backend } from "../../../../../src/backends/backend.js";
import { attention, attentionBackward } from "../../../../../src/ops/attention/attention.js";
import type { AttentionOptions } from "../../../../../src/ops/attention/options.js";
import { tensor } from "../../../../../src/ops/create.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import type { Shape } from "../../../../../src/tensor/shape.js";
import type { Tensor } from "../../../../../src/tensor/tensor.js";
import { assertSame } from "../../../../values/difference.js";
import { download, PlainTensor } from "../../../../values/plain.js";
import { copyKeys, copyRow, DROPOUT, type Problem, type Results, tensorShapes } from "./problem.js";

/** A query of a sequence and head. */
interface QueryPosition {
  readonly b: number;
  readonly head: number;
  readonly query: number;
}

/** The keys and values of a sequence and head on the reference. */
interface KeyTensors {
  readonly k: Tensor;
  readonly v: Tensor;
}

/** The position of a query among the keys, and its last visible key. */
function visibleKeys(
  { shape, keyLengths }: Problem,
  { b, query }: QueryPosition,
): { position: number; lastKey: number } {
  const length = keyLengths[b] as number;
  const position = shape.align === "end" ? query + length - shape.queries : query;
  const rightWindow = shape.causal ? 0 : shape.window[1];
  return { position, lastKey: rightWindow < 0 ? length - 1 : Math.min(length - 1, position + rightWindow) };
}

/** The options of the attention of one query, which is at the last key. */
function rowOptions(reference: Backend, problem: Problem, row: QueryPosition): AttentionOptions {
  const { shape, mask, bias, slopes, sinks } = problem;
  const { position, lastKey } = visibleKeys(problem, row);
  const { head, query, b } = row;
  const [leftWindow] = shape.window;
  const { plan, softcap, queries, keys, heads } = shape;
  const pairRange = (plane: number) => {
    const start = (plane * queries + query) * keys;
    return [start, start + lastKey + 1] as const;
  };
  const lineShape: Shape = [1, 1, 1, lastKey + 1];
  return {
    ...{ plan, softcap, align: "end", datapath: "hopper" },
    window: [leftWindow < 0 ? -1 : leftWindow + lastKey - position, -1],
    mask: mask && tensor(reference, mask.slice(...pairRange(0)), lineShape, "u8"),
    bias: bias && tensor(reference, bias.slice(...pairRange(head)), lineShape, "bf16"),
    alibiSlopes: slopes && tensor(reference, slopes.slice(head, head + 1)),
    sinks: sinks && tensor(reference, sinks.slice(head, head + 1)),
    dropout: shape.dropout
      ? { ...DROPOUT, firstHead: b * heads[0] + head, allHeads: shape.batch * heads[0] }
      : undefined,
  };
}

function checkRow(
  reference: Backend,
  problem: Problem,
  results: Results,
  keys: KeyTensors,
  row: QueryPosition,
): void {
  using _scope = new Scope();
  const { shape } = problem;
  const { dtype, widths, heads, queries } = shape;
  const { b, head, query } = row;
  const shapes = tensorShapes(shape);
  const { lastKey } = visibleKeys(problem, row);
  const tensorRow = (codes: Uint16Array, dimensions: Shape): PlainTensor =>
    new PlainTensor(
      dtype,
      [1, 1, 1, dimensions.at(-1) as number],
      copyRow(shape, codes, dimensions, [b, query, head]).slice(),
    );
  const uploadRow = (x: PlainTensor): Tensor => tensor(reference, x.data as Uint16Array, x.shape, dtype);
  const q = uploadRow(tensorRow(problem.q, shapes.q));
  const k = keys.k.view(0, [1, lastKey + 1, 1, widths[0]]);
  const v = keys.v.view(0, [1, lastKey + 1, 1, widths[1]]);
  const options = rowOptions(reference, problem, row);
  const { out, lse } = attention(q, k, v, options);
  const name = (result: string) => `${result} of sequence ${b}, head ${head}, query ${query}`;
  assertSame(name("out"), tensorRow(results.out, shapes.out), download(out));
  const lseIndex = (b * heads[0] + head) * queries + query;
  const actualLse = results.lse.slice(lseIndex, lseIndex + 1);
  assertSame(name("lse"), new PlainTensor("f32", [1, 1, 1], actualLse), download(lse));
  if (!results.dq) return;
  const grad = uploadRow(tensorRow(problem.grad, shapes.out));
  const biasGrad = results.dbias !== undefined;
  const grads = attentionBackward(grad, q, k, v, out, lse, { ...options, biasGrad });
  assertSame(name("dq"), tensorRow(results.dq, shapes.q), download(grads.dq));
  if (!results.dbias || !grads.dbias) return;
  const start = (head * queries + query) * shape.keys;
  const actualBiasGrad = results.dbias.slice(start, start + lastKey + 1);
  assertSame(
    name("dbias"),
    new PlainTensor("bf16", grads.dbias.shape, actualBiasGrad),
    download(grads.dbias),
  );
}

/** Compares rows of some heads, all of which use the same keys. */
export function checkRows(
  reference: Backend,
  problem: Problem,
  results: Results,
  {
    b,
    keyHead,
    rows,
  }: { readonly b: number; readonly keyHead: number; readonly rows: readonly QueryPosition[] },
): void {
  using _scope = new Scope();
  const { shape, keyLengths } = problem;
  const shapes = tensorShapes(shape);
  const keyRange = { b, head: keyHead, first: 0, end: keyLengths[b] as number };
  const uploadKeys = (codes: Uint16Array, width: number): Tensor =>
    tensor(reference, codes, [1, keyRange.end, 1, width], shape.dtype);
  const keys = {
    k: uploadKeys(copyKeys(problem, problem.k, shapes.k, keyRange), shape.widths[0]),
    v: uploadKeys(copyKeys(problem, problem.v, shapes.v, keyRange), shape.widths[1]),
  };
  for (const row of rows) checkRow(reference, problem, results, keys, row);
}
