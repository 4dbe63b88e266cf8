/** Attention and its gradient. */
import type { Backend } from "../../../src/backends/backend.js";
import { attention, attentionBackward } from "../../../src/ops/attention/attention.js";
import type { AttentionOptions } from "../../../src/ops/attention/options.js";
import { elementCount, type Shape, type WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { wideTensor } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/attention/attention.js";
import * as backwardOracle from "../../oracle/attention/backward.js";
import { add } from "../../oracle/core/rational.js";
import { laneSum } from "../../oracle/rows/norm.js";
import { download, type PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";
import type { Answer, Operation } from "../operation.js";
import { type AttentionCase, attentionCase } from "./case.js";
import { headTask, isApart, keySpan, querySpan, rowIndex, sizesOf } from "./heads.js";

export interface AttentionBackwardCase extends AttentionCase {
  /** The gradient of out. */
  readonly grad: PlainTensor<WideDType>;
}

/** The options of a case, with tensors on a backend. */
function optionsOn(backend: Backend, each: AttentionCase): AttentionOptions {
  const on = (x: PlainTensor | undefined): Tensor | undefined => x && upload(backend, x);
  const isThd = each.layout === "thd";
  const { layout, datapath, scale, causal, align, window, plan, biasPlace, softcap, dropout } = each;
  const lengths = { queries: on(each.queryLengths), keys: on(each.keyLengths) };
  return {
    ...{ layout, datapath, scale, causal, align, window, plan, biasPlace, softcap, dropout },
    ...(isThd
      ? { cuQueries: lengths.queries, cuKeys: lengths.keys }
      : { queryLengths: lengths.queries, keyLengths: lengths.keys }),
    cuPaddedQueries: on(each.queryStarts),
    cuPaddedKeys: on(each.keyStarts),
    pages: on(each.pages),
    mask: on(each.mask),
    bias: on(each.bias),
    alibiSlopes: on(each.alibiSlopes),
    sinks: on(each.sinks),
  };
}

/** The shape of out. */
export function outShape({ q, v }: AttentionCase): Shape {
  return [...q.shape.slice(0, -1), v.shape.at(-1) as number];
}

function statisticShape(each: AttentionCase): Shape {
  const { batch, heads, queries } = sizesOf(each);
  return each.layout === "thd" ? [heads, queries] : [batch, heads, queries];
}

/** The index of a row among statistics. */
function statisticIndex(each: AttentionCase, b: number, head: number, row: number): number {
  const { heads, queries } = sizesOf(each);
  return ((each.layout === "thd" ? 0 : b * heads) + head) * queries + row;
}

/** All pairs of a sequence and a head. */
function heads(each: AttentionCase): readonly (readonly [b: number, head: number])[] {
  const { batch, heads: count } = sizesOf(each);
  return Array.from({ length: batch * count }, (_, i) => [Math.floor(i / count), i % count]);
}

/** Writes the rows of a sequence and head to the elements of a tensor in the layout of the case. */
function writeRows(
  each: AttentionCase,
  values: number[],
  shape: Shape,
  [b, head, first]: readonly [b: number, head: number, first: number],
  rows: readonly (readonly number[])[],
): void {
  for (const [i, row] of rows.entries()) {
    const at = rowIndex(each.layout, shape, b, first + i, head);
    for (const [d, value] of row.entries()) values[at + d] = value;
  }
}

interface Forward {
  readonly out: number[];
  readonly lse: number[];
  readonly maxima: number[];
}

function forwardOf(each: AttentionCase): Forward {
  const shape = outShape(each);
  const out: number[] = Array(elementCount(shape)).fill(0);
  const lse: number[] = Array(elementCount(statisticShape(each))).fill(Number.NEGATIVE_INFINITY);
  const maxima: number[] = Array(sizesOf(each).heads).fill(Number.NEGATIVE_INFINITY);
  for (const [b, head] of heads(each)) {
    const result = oracle.attention(headTask(each, b, head));
    const { first } = querySpan(each, b);
    writeRows(each, out, shape, [b, head, first], result.out);
    for (const [i, value] of result.lse.entries()) lse[statisticIndex(each, b, head, first + i)] = value;
    maxima[head] = Math.max(maxima[head] as number, result.maximum);
  }
  return { out, lse, maxima };
}

export const attentionOperation: Operation<AttentionCase> = {
  arbitrary: attentionCase(true).filter(isApart),
  run(backend, each) {
    const [q, k, v] = [each.q, each.k, each.v].map((x) => upload(backend, x)) as [Tensor, Tensor, Tensor];
    const { out, lse, maxLogits } = attention(q, k, v, { ...optionsOn(backend, each), maxLogits: true });
    return { out: download(out), lse: download(lse), maxLogits: download(maxLogits as Tensor) };
  },
  oracle(each) {
    const { out, lse, maxima } = forwardOf(each);
    return {
      out: rounded(each.q.dtype, outShape(each), out),
      lse: rounded("f32", statisticShape(each), lse),
      maxLogits: rounded("f32", [sizesOf(each).heads], maxima),
    };
  },
};

export const attentionBackwardOperation: Operation<AttentionBackwardCase> = {
  arbitrary: attentionCase(false)
    .filter(isApart)
    .chain((each) =>
      wideTensor(outShape(each), { dtype: each.q.dtype }).map(
        (grad) => ({ ...each, grad }) as AttentionBackwardCase,
      ),
    ),
  run(backend, each) {
    const { out, lse } = forwardOf(each);
    return runBackward(backend, each, {
      out: rounded(each.q.dtype, outShape(each), out),
      lse: rounded("f32", statisticShape(each), lse),
    });
  },
  oracle: backwardAnswer,
};

/** Computes the gradients on a backend from the results of a forward pass. */
export function runBackward(
  backend: Backend,
  each: AttentionBackwardCase,
  results: { readonly out: PlainTensor; readonly lse: PlainTensor },
): Answer {
  const { out, lse } = results;
  const [grad, q, k, v, result, statistics] = [each.grad, each.q, each.k, each.v, out, lse].map((x) =>
    upload(backend, x),
  ) as [Tensor, Tensor, Tensor, Tensor, Tensor, Tensor];
  const { pages: _, ...options } = optionsOn(backend, each);
  const biasGrad = each.bias !== undefined;
  const grads = attentionBackward(grad, q, k, v, result, statistics, { ...options, biasGrad });
  return Object.fromEntries(Object.entries(grads).map(([name, x]) => [name, download(x as Tensor)]));
}

function backwardAnswer(each: AttentionBackwardCase): Answer {
  const { dtype } = each.q;
  const { batch, keyHeads, heads: count } = sizesOf(each);
  const forward = forwardOf(each);
  const group = keyHeads && count / keyHeads;
  const zeros = (shape: Shape): number[] => Array(elementCount(shape)).fill(0);
  const [dq, dk, dv] = [zeros(each.q.shape), zeros(each.k.shape), zeros(each.v.shape)];
  const dbias = each.bias && zeros(each.bias.shape);
  const terms = Array.from({ length: count }, () => Array(statisticRows(each)).fill(0) as number[]);
  for (let b = 0; b < batch; b++)
    for (let keyHead = 0; keyHead < keyHeads; keyHead++) {
      const members = Array.from({ length: group }, (_, n) => keyHead * group + n);
      const tasks = members.map((head) => backwardTask(each, forward, b, head));
      const grads = backwardOracle.attentionBackward(tasks);
      for (const [n, head] of members.entries()) {
        const { first } = querySpan(each, b);
        writeRows(each, dq, each.q.shape, [b, head, first], grads.dq[n] as number[][]);
        if (dbias) addBias(each, dbias, b, head, grads.dbias[n] as number[][]);
        for (const [i, term] of (grads.sinkTerms[n] ?? []).entries()) {
          const place = each.layout === "thd" ? first + i : b * sizesOf(each).queries + i;
          (terms[head] as number[])[place] = term;
        }
      }
      writeRows(each, dk, each.k.shape, [b, keyHead, keySpan(each, b).first], grads.dk);
      writeRows(each, dv, each.v.shape, [b, keyHead, keySpan(each, b).first], grads.dv);
    }
  return {
    dq: rounded(dtype, each.q.shape, dq),
    dk: rounded(dtype, each.k.shape, dk),
    dv: rounded(dtype, each.v.shape, dv),
    ...(each.bias && dbias && { dbias: rounded(each.bias.dtype, each.bias.shape, dbias) }),
    ...(each.sinks && {
      dsinks: rounded(
        "f32",
        [count],
        terms.map((row) => -laneSum(row)),
      ),
    }),
  };
}

/** The number of rows of a head over which the gradient of a sink sums. */
function statisticRows(each: AttentionCase): number {
  const { batch, queries } = sizesOf(each);
  return each.layout === "thd" ? queries : batch * queries;
}

function backwardTask(
  each: AttentionBackwardCase,
  { out, lse }: Forward,
  b: number,
  head: number,
): backwardOracle.BackwardTask {
  const task = headTask(each, b, head);
  const { first, count } = querySpan(each, b);
  const shape = outShape(each);
  const width = shape.at(-1) as number;
  const grads = Array.from(wideValues(each.grad));
  const rowAt = (values: readonly number[], i: number): number[] => {
    const at = rowIndex(each.layout, shape, b, first + i, head);
    return values.slice(at, at + width);
  };
  const rows = Array.from({ length: count }, (_, i) => i);
  return {
    ...task,
    grad: rows.map((i) => rowAt(grads, i)),
    out: rows.map((i) => rowAt(out, i)),
    lse: rows.map((i) => lse[statisticIndex(each, b, head, first + i)] as number),
  };
}

/** Adds the gradients of the scores of a head to the gradient of the bias; b and heads come in ascending order. */
function addBias(
  each: AttentionCase,
  dbias: number[],
  b: number,
  head: number,
  terms: readonly (readonly number[])[],
): void {
  const [items, planes, rows, columns] = (each.bias as PlainTensor).shape as readonly [
    number,
    number,
    number,
    number,
  ];
  const plane = (items > 1 ? b : 0) * planes + (planes > 1 ? head : 0);
  for (const [i, row] of terms.entries())
    for (const [j, term] of row.entries()) {
      const at = (plane * rows + i) * columns + j;
      dbias[at] = add(dbias[at] as number, term);
    }
}
