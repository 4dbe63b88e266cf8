/** Combines the options of an attention module and of one call into the options of the operation. */
import type { AttentionLayout } from "../../backends/ops/attention.js";
import { ArgumentError, ShapeError } from "../../errors.js";
import type { BlockwiseAttentionOptions } from "../../functional/blockwise-attention.js";
import { tensor, zeros } from "../../ops/create.js";
import { variableOf } from "../../tape/differentiable.js";
import type { Shape } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { exp, fixed, log, ratio, toOdd } from "../rotary/fixed-point.js";
import { type Visibility, visibilityOf } from "./masks.js";
import type { AttentionCall, DotProductAttentionOptions, HeadCounts, SoftmaxType } from "./options.js";

/** The options of a module with the options of one call. */
export interface CoreOptions {
  readonly caller: string;
  readonly module: DotProductAttentionOptions;
  readonly call: AttentionCall;
  readonly counts: HeadCounts;
}

/** The order of the dimensions in this call. */
export function formatOf({ module, call }: Pick<CoreOptions, "module" | "call">): AttentionLayout {
  return call.qkvFormat ?? module.qkvFormat ?? "sbhd";
}

/**
 * Returns which keys this call hides. With a cache, the last query of a causal mask is aligned to the last key, as in
 * TransformerEngine.
 */
function callVisibility({ caller, module, call }: CoreOptions): Visibility {
  const visibility = visibilityOf(caller, {
    mask: call.attnMaskType ?? module.attnMaskType ?? "causal",
    window: call.windowSize ?? module.windowSize,
    bottomRightDiagonal: call.bottomRightDiagonal ?? module.bottomRightDiagonal,
  });
  return call.inferenceParams ? { ...visibility, align: "end" } : visibility;
}

/** Throws `ShapeError` unless a tensor has the heads and the width of the module. */
export function requireHeads(
  caller: string,
  name: string,
  shape: Shape,
  [heads, width]: readonly [heads: number, width: number],
): void {
  if (shape.at(-2) !== heads || shape.at(-1) !== width)
    throw new ShapeError(
      `${caller}: ${name} is [${shape}]; its last dimensions must be the heads and their width, [${heads}, ${width}]`,
    );
}

/** Returns the options of the operation that do not depend on a cache, dropout or sinks. */
export function coreOptions(core: CoreOptions, backend: Tensor["backend"]): BlockwiseAttentionOptions {
  const { caller, module, call, counts } = core;
  const layout = formatOf(core);
  const visibility = callVisibility(core);
  const softcap = call.softcap ?? module.softcap ?? 0;
  return {
    layout,
    ...(module.softmaxScale === undefined ? {} : { scale: module.softmaxScale }),
    align: visibility.align,
    window: visibility.window,
    ...(softcap > 0 ? { softcap } : {}),
    ...maskOf(caller, visibility, call),
    ...sequencesOf(caller, { layout, visibility, call }),
    ...biasOf(caller, call, counts, backend),
  };
}

function maskOf(caller: string, { arbitrary }: Visibility, { attentionMask: mask }: AttentionCall) {
  if (arbitrary !== (mask !== undefined))
    throw new ArgumentError(
      arbitrary
        ? `${caller}: the mask is "arbitrary" and attentionMask is missing; give it`
        : `${caller}: attentionMask goes with the mask "arbitrary"; for padding give seqlensQ, or leave it out`,
    );
  return mask ? { mask } : {};
}

/** Returns where sequences begin, or their lengths. */
function sequencesOf(
  caller: string,
  {
    layout,
    visibility: { padding },
    call,
  }: {
    readonly layout: AttentionLayout;
    readonly visibility: Visibility;
    readonly call: AttentionCall;
  },
): Pick<BlockwiseAttentionOptions, "cuQueries" | "cuKeys" | "queryLengths" | "keyLengths"> {
  const { cuSeqlensQ, cuSeqlensKv, seqlensQ, seqlensKv, inferenceParams } = call;
  const cuSeqlens = cuSeqlensQ ?? cuSeqlensKv ?? call.cuSeqlensQPadded ?? call.cuSeqlensKvPadded;
  const lengths = seqlensQ ?? seqlensKv;
  if (inferenceParams) {
    if (cuSeqlens || lengths)
      throw new ArgumentError(`${caller}: preStep of inferenceParams says the lengths; leave the others out`);
    return {};
  }
  if (layout === "thd") {
    if (!padding || !cuSeqlensQ || lengths)
      throw new ArgumentError(
        `${caller}: the format "thd" needs a padding mask, such as "padding_causal", and cuSeqlensQ; give them, and no seqlensQ`,
      );
    const gaps = cuSeqlensKv ? call.cuSeqlensKvPadded : (call.cuSeqlensKvPadded ?? call.cuSeqlensQPadded);
    return {
      cuQueries: cuSeqlensQ,
      cuKeys: cuSeqlensKv ?? cuSeqlensQ,
      ...(call.cuSeqlensQPadded ? { cuPaddedQueries: call.cuSeqlensQPadded } : {}),
      ...(gaps ? { cuPaddedKeys: gaps } : {}),
    } as BlockwiseAttentionOptions;
  }
  if (cuSeqlens)
    throw new ArgumentError(`${caller}: cuSeqlensQ goes with the format "thd"; give seqlensQ, the lengths`);
  if (padding !== (seqlensQ !== undefined))
    throw new ArgumentError(
      padding
        ? `${caller}: the mask hides padding and seqlensQ is missing; give the length of each sequence`
        : `${caller}: seqlensQ goes with a padding mask, such as "padding_causal"; give one, or leave seqlensQ out`,
    );
  return seqlensQ ? { queryLengths: seqlensQ, keyLengths: seqlensKv ?? seqlensQ } : {};
}

function biasOf(
  caller: string,
  call: AttentionCall,
  { heads, allHeads, firstHead }: HeadCounts,
  backend: Tensor["backend"],
): Pick<BlockwiseAttentionOptions, "bias" | "biasPlace" | "alibiSlopes"> {
  const { coreAttentionBiasType: type = "no_bias", coreAttentionBias: bias, alibiSlopes: slopes } = call;
  const takesBias = type === "pre_scale_bias" || type === "post_scale_bias";
  if (takesBias !== (bias !== undefined) || (slopes && type !== "alibi"))
    throw new ArgumentError(
      `${caller}: coreAttentionBiasType is "${type}"; give coreAttentionBias with "pre_scale_bias" and "post_scale_bias", and alibiSlopes with "alibi" only`,
    );
  if (type === "alibi") {
    const rankSlopes = alibiSlopes(allHeads).subarray(firstHead, firstHead + heads);
    return { alibiSlopes: slopes ?? tensor(backend, rankSlopes, [heads], "f32") };
  }
  return bias !== undefined
    ? {
        bias: variableOf(caller, "coreAttentionBias", bias),
        biasPlace: type === "pre_scale_bias" ? "beforeScale" : "afterScale",
      }
    : {};
}

/**
 * Returns the sinks of a softmax type with constant sinks: a logit of 0 for each head, which takes a part of each row's
 * probability.
 */
export function constantSinks(type: SoftmaxType, heads: number, backend: Tensor["backend"]) {
  return type === "off-by-one" ? { sinks: zeros(backend, "f32", [heads]) } : {};
}

/**
 * Returns the slopes of the ALiBi paper for a number of heads, rounded to the nearest f32. Let n be the largest power of two up
 * to `heads`. The first n slopes are 2^(-8i/n) for i from 1; the others are 2^(-4i/n) for odd i.
 */
function alibiSlopes(heads: number): Float32Array {
  const n = 2 ** Math.floor(Math.log2(heads));
  const logarithm = log(fixed(2));
  const power = (numerator: number): number =>
    Math.fround(toOdd(exp(ratio(-logarithm, BigInt(numerator), BigInt(n)))));
  return Float32Array.from({ length: heads }, (_, i) =>
    i < n ? power(8 * (i + 1)) : power(4 * (2 * (i - n) + 1)),
  );
}
