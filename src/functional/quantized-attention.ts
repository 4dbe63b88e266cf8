/** Softmax attention whose tensors are quantized, composed of whole operations (numerics.md §10.9). */
import type { AttentionRule } from "../backends/ops/attention.js";
import { attentionSizes } from "../backends/ops/attention-sizes.js";
import { castTo } from "../ops/cast/cast.js";
import { tensor, zeros } from "../ops/create.js";
import { dropout as dropped } from "../ops/elementwise/dropout.js";
import { add, scaled, where } from "../ops/elementwise/operators.gen.js";
import { batchedGemm } from "../ops/gemm/batched.js";
import { concatenate, expand, slice } from "../ops/layout/copy-slice.js";
import { dequantize } from "../ops/quantize/dequantize.js";
import { takeRows } from "../ops/rows/expert-rows.js";
import { softmax, softmaxBackward } from "../ops/rows/softmax.js";
import { sum } from "../ops/rows/sum.js";
import type { AttentionTensor } from "../recipes/table.js";
import { differentiable, differentiableOne } from "../tape/differentiable.js";
import type { BackwardPass } from "../tape/node.js";
import { type Gradient, wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import {
  type AttentionSequences,
  alibiBias,
  type SequenceRows,
  splitSequences,
  visiblePairs,
} from "./attention-pairs.js";
import { plainDatapath } from "./datapath.js";
import { permute, reshape } from "./layout.js";
import { sumTo } from "./sum.js";

type WideTensor = Tensor<WideDType>;

/** The quantization of one call of attention, and of its backward pass. */
export interface AttentionQuantization {
  /** Quantizes tensors that share a scale. Returns undefined if the recipe keeps them in high precision. */
  quantize(name: AttentionTensor, values: readonly WideTensor[]): readonly QuantizedTensor[] | undefined;
  /** Prepares the backward pass. Returns the tensors that a node must save for it. */
  forBackward(): readonly Tensor[];
  /** Registers the pending scale updates. Call it before gradients are quantized. */
  beginBackward(pass: BackwardPass): void;
}

/** An attention whose tensors are quantized. */
export interface QuantizedAttention {
  readonly inputs: readonly [q: Variable, k: Variable, v: Variable];
  readonly bias: Variable | undefined;
  readonly sinks: Variable | undefined;
  /** The arguments of the operation `attention` for the values of these variables. */
  readonly rule: AttentionRule;
  readonly quantization: AttentionQuantization;
  /** Whether the queries, keys and values are values of codes already, so that the caller quantizes their gradients. */
  readonly hasCodes: boolean;
  /** Whether the result is quantized. Otherwise it has the values of the codes. */
  readonly returnsCodes: boolean;
}

/**
 * Returns the weighted sums of values, with heads and their widths as one dimension. The rule has no pages and no softcap.
 * Waits for the device where the rule has lengths, a mask or slopes.
 */
export function quantizedAttention(options: QuantizedAttention): Variable {
  const { inputs, rule, quantization, hasCodes, returnsCodes } = options;
  const sequences = splitSequences(rule);
  const sides = ["queries", "keys", "keys"] as const;
  const heads = inputs.map((input, i) => headsFirst(input, rule, sequences[sides[i] as "queries" | "keys"]));
  const roundedHeads = hasCodes ? heads : roundedInputs(heads, quantization);
  const out = headOutputs(roundedHeads as readonly [Variable, Variable, Variable], sequences, options);
  const mergedHeads = headsLast(out, rule, sequences.queries);
  return roundedOutput(mergedHeads, quantization, returnsCodes);
}

/** Returns the values of the codes of tensors that share a scale, or the tensors rounded to `dtype` if they stay wide. */
function roundTripValues(
  quantization: AttentionQuantization,
  name: AttentionTensor,
  values: readonly WideTensor[],
  dtype: WideDType,
): readonly WideTensor[] {
  const codes = quantization.quantize(name, values);
  return codes ? codes.map((each) => dequantize(each, dtype)) : values.map((each) => castTo(each, dtype));
}

function roundedInputs(heads: readonly Variable[], quantization: AttentionQuantization): readonly Variable[] {
  return differentiable(heads, (grad) => {
    const values = heads.map(({ value }) => wideOf("attention", value));
    const { dtype } = values[0] as WideTensor;
    const savedTensors = grad ? quantization.forBackward() : [];
    return {
      results: roundTripValues(quantization, "qkv", values, dtype),
      saved: savedTensors,
      backward: (grads, pass) => {
        quantization.beginBackward(pass);
        const wideGrads = grads.map((each) => wideOf("attention: a gradient", each as Gradient));
        return roundTripValues(quantization, "dqkv", wideGrads, dtype);
      },
    };
  });
}

/**
 * Returns the values of codes in their nominal dtype, and quantizes the gradient. `quantizesGradient` says whether the node that
 * computed the codes takes a quantized gradient.
 */
export function valuesOfCodes(
  source: Variable,
  quantization: AttentionQuantization,
  quantizesGradient: boolean,
): Variable {
  return differentiableOne([source], (grad) => ({
    result: dequantize(source.value as QuantizedTensor),
    saved: grad ? quantization.forBackward() : [],
    quantized: { gradInput: quantizesGradient },
    backward: (dy, pass) => {
      quantization.beginBackward(pass);
      const wide = wideOf("attention: a gradient", dy);
      const [codes] = quantization.quantize("dqkv", [wide]) as readonly [QuantizedTensor];
      return [quantizesGradient ? codes : dequantize(codes, wide.dtype)];
    },
  }));
}

function roundedOutput(out: Variable, quantization: AttentionQuantization, returnsCodes: boolean): Variable {
  return differentiableOne([out], () => {
    const value = wideOf("attention", out.value);
    const [codes] = quantization.quantize("o", [value]) as readonly [QuantizedTensor];
    return {
      result: returnsCodes ? codes : dequantize(codes, value.dtype),
      quantized: { gradOutput: true },
      backward: (grad, pass) => {
        if (grad instanceof QuantizedTensor) return [dequantize(grad, value.dtype)];
        quantization.beginBackward(pass);
        return roundTripValues(quantization, "do", [wideOf("attention: the gradient", grad)], value.dtype);
      },
    };
  });
}

/** Returns [B, H, S, D], in which rows beyond the length of a sequence of "thd" are +0. */
function headsFirst(x: Variable, { layout }: AttentionRule, rows: readonly SequenceRows[]): Variable {
  if (layout === "bshd") return permute(x, [0, 2, 1, 3]);
  if (layout === "sbhd") return permute(x, [1, 2, 0, 3]);
  const [tokens = 0, heads = 0, width = 0] = x.shape;
  const longest = longestSequence(rows);
  const sources = new Int32Array(rows.length * longest).fill(-1);
  rows.forEach(({ start, count }, b) => {
    for (let i = 0; i < count; i++) sources[b * longest + i] = start + i;
  });
  const paddedRows = movedRows(reshape(x, [tokens, heads * width]), sources);
  return permute(reshape(paddedRows, [rows.length, longest, heads, width]), [0, 2, 1, 3]);
}

/** The inverse of `headsFirst`, with heads and their widths as one dimension. Rows of no sequence are +0. */
function headsLast(x: Variable, { layout, q }: AttentionRule, rows: readonly SequenceRows[]): Variable {
  const [batch = 0, heads = 0, longest = 0, width = 0] = x.shape;
  if (layout === "bshd") return reshape(permute(x, [0, 2, 1, 3]), [batch, longest, heads * width]);
  if (layout === "sbhd") return reshape(permute(x, [2, 0, 1, 3]), [longest, batch, heads * width]);
  const paddedRows = reshape(permute(x, [0, 2, 1, 3]), [batch * longest, heads * width]);
  const sources = new Int32Array(q.shape[0] as number).fill(-1);
  rows.forEach(({ start, count }, b) => {
    for (let i = 0; i < count; i++) sources[start + i] = b * longest + i;
  });
  return movedRows(paddedRows, sources);
}

function longestSequence(rows: readonly SequenceRows[]): number {
  return rows.reduce((longest, { count }) => Math.max(longest, count), 0);
}

/** Returns the rows of a matrix that `sources` selects, +0 for -1. No row is selected twice. */
function movedRows(x: Variable, sources: Int32Array): Variable {
  return differentiableOne([x], () => {
    const value = wideOf("attention", x.value);
    const inverseRows = new Int32Array(value.shape[0] as number).fill(-1);
    sources.forEach((row, i) => {
      if (row >= 0) inverseRows[row] = i;
    });
    const take = (source: WideTensor, rows: Int32Array): WideTensor =>
      takeRows(source, tensor(value.backend, rows, [rows.length], "i32"));
    return {
      result: take(value, sources),
      backward: (grad) => [take(wideOf("attention: a gradient", grad), inverseRows)],
    };
  });
}

/** The fixed parts of the scores of a call: sizes, and what no gradient flows to. */
interface Scores {
  readonly rule: AttentionRule;
  /** [B, H, Sq, Sk]. */
  readonly shape: Shape;
  /** The factor of the product of queries and keys. A bias before the scale needs the scale behind it. */
  readonly alpha: number;
  readonly visible: Tensor | undefined;
  readonly alibi: Tensor<"f32"> | undefined;
}

/** Computes the results of all heads, [B, H, Sq, V], from values of codes [B, H, Sq, D], [B, G, Sk, D] and [B, G, Sk, V]. */
function headOutputs(
  inputs: readonly [Variable, Variable, Variable],
  sequences: AttentionSequences,
  { rule, bias, sinks, quantization }: QuantizedAttention,
): Variable {
  const optionalInputs = [bias, sinks].filter((each) => each !== undefined);
  return differentiableOne([...inputs, ...optionalInputs], () => {
    const [q, k, v] = inputs.map(({ value }) => wideOf("attention", value)) as [
      WideTensor,
      WideTensor,
      WideTensor,
    ];
    const { dtype, backend } = q;
    const datapath = plainDatapath(backend, dtype);
    const [batch = 0, heads = 0, queries = 0] = q.shape;
    const { keyHeads } = attentionSizes(rule);
    const [, , keys = 0, valueWidth = 0] = v.shape;
    const shape = [batch, heads, queries, keys];
    // heads that share keys are the rows of one product
    const groupHeads = (x: WideTensor): WideTensor => {
      const [, ofX = 0, rows = 0, width = 0] = x.shape;
      return x.reshape([batch * keyHeads, keyHeads === 0 ? 0 : (ofX / keyHeads) * rows, width]);
    };
    const scores: Scores = {
      rule,
      shape,
      alpha: rule.biasBeforeScale && bias ? 1 : rule.scale,
      visible: visiblePairs(rule, sequences, [queries, keys]),
      alibi: rule.slopes && alibiBias(rule, rule.slopes, sequences, [queries, keys]),
    };
    const { alpha } = scores;
    const addend = bias && wideOf("attention", bias.value);
    const toPairs = (x: WideTensor): WideTensor => x.reshape(shape);
    const ofPairs = { layout: "TN", outDtype: "f32", datapath } as const;
    const products = runInScope(() =>
      toPairs(batchedGemm({ a: groupHeads(k), b: groupHeads(q), alpha, ...ofPairs }).out),
    );
    const biasedScores = withBias(products, scores, addend);
    const logits = sinks && wideOf("attention", sinks.value);
    const shares = computeProbabilities(biasedScores, scores, logits, dtype);
    const keptShares = droppedOut(keysOnly(shares, keys), rule);
    const codes = quantization.quantize("s", [keptShares]);
    if (codes && keptShares !== shares) keptShares.dispose();
    const factors = (): WideTensor =>
      groupHeads(codes ? dequantize(codes[0] as QuantizedTensor, dtype) : keptShares);
    const { out } = batchedGemm({ a: groupHeads(v), b: factors(), layout: "NN", datapath });
    return {
      result: out.reshape([batch, heads, queries, valueWidth]),
      saved: [shares, codes?.[0], codes || keptShares === shares ? undefined : keptShares, scores.visible],
      backward: (grad, pass) => {
        quantization.beginBackward(pass);
        const dout = groupHeads(castTo(wideOf("attention: the gradient", grad), dtype));
        const dv = runInScope(() => batchedGemm({ a: dout, b: factors(), layout: "NT", datapath }).out);
        const dp = runInScope(() => toPairs(batchedGemm({ a: groupHeads(v), b: dout, ...ofPairs }).out));
        const { ds, dsinks } = scoreGradients(dp, shares, scores, sinks !== undefined);
        const roundedGrad = mapAndDispose(
          ds,
          (x) => roundTripValues(quantization, "dp", [x], dtype)[0] as WideTensor,
        );
        const dproducts =
          alpha === rule.scale ? roundedGrad : mapAndDispose(roundedGrad, (x) => scaled(x, rule.scale));
        const factor = groupHeads(dproducts);
        const dq = batchedGemm({ a: groupHeads(k), b: factor, layout: "NN", alpha, datapath }).out;
        const dk = batchedGemm({ a: groupHeads(q), b: factor, layout: "NT", alpha, datapath }).out;
        const dbias = addend && sumTo(addend.shape, addend.dtype, dproducts);
        return [
          ...[dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)],
          ...(bias ? [dbias] : []),
          ...(sinks ? [dsinks] : []),
        ];
      },
    };
  });
}

/** Returns the result of `body`, and frees all other tensors that it creates. */
function runInScope(body: () => WideTensor): WideTensor {
  using scope = new Scope();
  return scope.keep(body());
}

/** Returns `f(x)`, which may be x. Frees x otherwise, and all other tensors that `f` creates. */
function mapAndDispose(x: WideTensor, f: (x: WideTensor) => WideTensor): WideTensor {
  using scope = new Scope();
  const result = f(x);
  if (result === x) return x;
  scope.keep(result);
  x.dispose();
  return result;
}

/** Adds the bias, ALiBi, and the scale if it follows the bias. Frees `products`. */
function withBias(
  products: WideTensor,
  { rule, shape, alibi }: Scores,
  bias: WideTensor | undefined,
): WideTensor {
  const biasedScores = bias ? mapAndDispose(products, (x) => add(x, expand(bias, shape))) : products;
  const scores =
    bias && rule.biasBeforeScale ? mapAndDispose(biasedScores, (x) => scaled(x, rule.scale)) : biasedScores;
  return alibi ? mapAndDispose(scores, (x) => add(x, expand(alibi, shape))) : scores;
}

/** Replaces the elements of hidden pairs by `value`. Frees x. */
function maskScores(x: WideTensor, { shape, visible }: Scores, value: number): WideTensor {
  if (!visible) return x;
  return mapAndDispose(x, () => {
    const scalar = tensor(x.backend, [value], [1, 1, 1, 1], "f32");
    const out = expand(castTo(scalar, x.dtype), shape);
    return where(expand(visible, shape), x, out, { out });
  });
}

/**
 * Returns the probabilities in `dtype`, with a last column of the sinks if there are any. Hidden pairs have +0. Frees the scores.
 */
function computeProbabilities(
  scores: WideTensor,
  scoreParts: Scores,
  sinks: WideTensor | undefined,
  dtype: WideDType,
): WideTensor {
  const [batch = 0, heads = 0, queries = 0] = scoreParts.shape;
  const maskedScores = maskScores(scores, scoreParts, Number.NEGATIVE_INFINITY);
  const logits = sinks
    ? mapAndDispose(maskedScores, (x) =>
        concatenate([x, expand(sinks.reshape([1, heads, 1, 1]), [batch, heads, queries, 1])], 3),
      )
    : maskedScores;
  const shares = mapAndDispose(logits, (x) => softmax(x, { outDtype: dtype }));
  // a row without visible keys is all 0, not NaN
  return sinks ? shares : maskScores(shares, scoreParts, 0);
}

/** Returns the columns of keys, without the column of the sinks. */
function keysOnly(x: WideTensor, keys: number): WideTensor {
  return x.shape[3] === keys ? x : slice(x, 3, 0, keys);
}

/** The draws of heads that are a part of all heads differ from those of the other parts. */
function droppedOut(x: WideTensor, { dropout }: AttentionRule): WideTensor {
  if (!dropout) return x;
  const { probability, seed, offset, firstHead } = dropout;
  const rankOffset = BigInt.asUintN(64, offset + (BigInt(firstHead) << 32n));
  return dropped(x, { probability, seed, offset: rankOffset });
}

/**
 * Returns the gradients of scores and of sinks, f32, from the gradient of the probabilities as they were multiplied, which it
 * frees.
 */
function scoreGradients(
  dp: WideTensor,
  shares: WideTensor,
  scores: Scores,
  hasSinks: boolean,
): { readonly ds: WideTensor; readonly dsinks: WideTensor | undefined } {
  const { backend } = dp;
  const [batch = 0, heads = 0, queries = 0, keys = 0] = scores.shape;
  const keptGrad = scores.rule.dropout ? mapAndDispose(dp, (x) => droppedOut(x, scores.rule)) : dp;
  const maskedGrad = maskScores(keptGrad, scores, 0);
  const ofShares = (x: WideTensor): WideTensor => softmaxBackward(x, shares, { outDtype: "f32" });
  if (!hasSinks) return { ds: mapAndDispose(maskedGrad, ofShares), dsinks: undefined };
  const scaledGrad = mapAndDispose(maskedGrad, (x) =>
    concatenate([x, zeros(backend, "f32", [batch, heads, queries, 1])], 3),
  );
  const ds = mapAndDispose(scaledGrad, ofShares);
  const dsinks = runInScope(() => sum(slice(ds, 3, keys, keys + 1), { dim: [0, 2, 3] }).reshape([heads]));
  return { ds: mapAndDispose(ds, (x) => slice(x, 3, 0, keys)), dsinks };
}
