/** A model of attention with its projections and of a transformer layer, on one rank or divided among ranks by heads. */

import { dropout } from "../elementwise/dropout.js";
import type { AttentionScales } from "./attention-scales.js";
import { add } from "./functions.js";
import { type AttentionModel, attend, joinedHeads, pickRows, splitHeads } from "./heads.js";
import { linear, type MLPModel, mlp, normLinear } from "./layers.js";
import type { CallModel, LinearModel, ParameterModel, Run } from "./linear.js";
import { mapMatrix } from "./matrix.js";
import { type NormModel, normLayer } from "./norms.js";
import { attendQuantized, valuesOfCodes } from "./quantized-heads.js";
import { type Tape, type Value, wideOf } from "./tape.js";

export interface MultiheadModel {
  readonly core: Omit<AttentionModel, "dropout" | "family">;
  /** The probability of dropout. Each call uses a new offset of the random bits. */
  readonly attentionDropout: number;
  readonly interleaved: boolean;
  /** The norm of the input. */
  readonly norm: NormModel | undefined;
  /** The projection of the queries, or of the queries, keys and values. */
  readonly first: LinearModel;
  /** The projection of the keys and values of another tensor. */
  readonly keyValue: LinearModel | undefined;
  readonly qNorm: NormModel | undefined;
  readonly kNorm: NormModel | undefined;
  readonly sinks: ParameterModel | undefined;
  readonly proj: LinearModel;
  /** FP8 attention, and the number of ranks that have a part of the heads. */
  readonly fp8?: FP8Model | undefined;
}

export interface FP8Model {
  readonly scales: AttentionScales;
  /** Whether projections pass quantized tensors to attention too, where their recipe allows it. */
  readonly mha: boolean;
  readonly ranks: number;
  /** Whether ranks have a part of the rows between layers. */
  readonly sequence: boolean;
}

/**
 * A norm of heads. Each of the norm's `ranks` has an equal share of the `heads` of each row. The gradients of the norm's
 * parameters are sums over the rows of each rank.
 */
function headNorm(tape: Tape, x: Value, heads: number, norm: NormModel): Value {
  const { ranks = 1 } = norm;
  const { shape } = x.wide;
  const [rows, width] = [shape[0] / heads, shape[1]];
  const headsPerRank = heads / ranks;
  /** The index of the row of x that is row i in the order of ranks. */
  const rowOf = (i: number): number => {
    const rank = Math.floor(i / (rows * headsPerRank));
    const row = Math.floor(i / headsPerRank) % rows;
    return row * heads + rank * headsPerRank + (i % headsPerRank);
  };
  const places = new Map(Array.from({ length: shape[0] }, (_, i) => [rowOf(i), i]));
  const byRank = pickRows(tape, x, shape, (i, j) => rowOf(i) * width + j);
  const normed = normLayer(tape, byRank, norm);
  return pickRows(tape, normed, shape, (i, j) => (places.get(i) as number) * width + j);
}

/** The result of the module. With a separate projection for keys and values, their source is `memory`. */
export function multihead(
  run: Run,
  tape: Tape,
  x: Value,
  memory: Value | undefined,
  model: MultiheadModel,
  call: CallModel,
): Value {
  const { core, interleaved, norm, first, keyValue } = model;
  const { heads, groups } = core;
  const { fp8 } = model;
  const isDelayed = fp8?.scales.recipe.kind === "delayed";
  const hasCodes = isDelayed && fp8.mha && !model.qNorm;
  const use = hasCodes ? { ...call, fp8Output: true } : call;
  const values = (result: Value): Value =>
    hasCodes ? valuesOfCodes(tape, result, fp8.scales, !fp8.sequence) : result;
  const projected = values(
    norm
      ? (normLinear(run, tape, x, { norm, layer: first }, use, false)[0] as Value)
      : linear(run, tape, x, first, use),
  );
  const [q, k, v] = (
    keyValue && memory
      ? [
          ...splitHeads(tape, projected, core, false, [heads / groups]),
          ...splitHeads(tape, values(linear(run, tape, memory, keyValue, use)), core, interleaved, [1, 1]),
        ]
      : splitHeads(tape, projected, core, interleaved, [heads / groups, 1, 1])
  ) as [Value, Value, Value];
  const { qNorm, kNorm, attentionDropout: probability } = model;
  const turned = [
    qNorm ? headNorm(tape, q, heads, qNorm) : q,
    kNorm ? headNorm(tape, k, groups, kNorm) : k,
  ] as const;
  const randomDraws =
    probability > 0 ? { probability, seed: run.random.seed, offset: run.random.offset++ } : undefined;
  const options = { ...core, family: run.family, dropout: randomDraws };
  if (fp8) {
    const boundaries = { scales: fp8.scales, hasCodes, returnsCodes: true, parts: fp8.ranks };
    const merged = attendQuantized(tape, [...turned, v], options, model.sinks, boundaries);
    return linear(run, tape, merged, model.proj, isDelayed ? { ...call, fp8Grad: true } : call);
  }
  const context = attend(tape, [...turned, v], options, model.sinks);
  return linear(run, tape, joinedHeads(tape, context, heads), model.proj, call);
}

export interface TransformerModel {
  readonly attention: MultiheadModel;
  readonly mlp: MLPModel;
  /** The dropout probability of tensors that are added to a residual. */
  readonly hiddenDropout: number;
  /** Whether attention and the MLP read the same input. */
  readonly parallel: boolean;
  /** The norm of the result. */
  readonly last: NormModel | undefined;
}

function dropped(run: Run, tape: Tape, x: Value, probability: number): Value {
  if (probability === 0) return x;
  const options = { probability, seed: run.random.seed, offset: run.random.offset++ };
  const dropped = (values: Float32Array): number[] => dropout([...values], options);
  const out = dropped(x.wide.data);
  return tape.one(
    [x],
    mapMatrix(x.wide, (_, i) => out[i] as number),
    (grad) => {
      const wide = wideOf(grad);
      const back = dropped(wide.data);
      return [mapMatrix(wide, (_, i) => back[i] as number)];
    },
  );
}

/** The result of an encoder layer. */
export function transformerLayer(
  run: Run,
  tape: Tape,
  x: Value,
  model: TransformerModel,
  call: CallModel,
): Value {
  const { attention, hiddenDropout, parallel, last } = model;
  const added = (residual: Value, out: Value): Value =>
    add(tape, residual, dropped(run, tape, out, hiddenDropout));
  const attended = multihead(run, tape, x, undefined, attention, call);
  if (parallel) return added(x, add(tape, attended, mlp(run, tape, x, model.mlp, call)));
  const middle = added(x, attended);
  const out = added(middle, mlp(run, tape, middle, model.mlp, call));
  return last ? normLayer(tape, out, last) : out;
}
