/** The linear layers of MultiheadAttention. */
import type { Backend } from "../../backends/backend.js";
import { ArgumentError } from "../../errors.js";
import { groupOf } from "../../functional/ranks.js";
import { orDispose } from "../../tensor/scope.js";
import { LayerNormLinear, type LayerNormLinearOptions } from "../layer-norm-linear.js";
import type { LinearOptions } from "../linear/parts.js";
import { Linear } from "../linear.js";
import type { Module } from "../module.js";
import type { HeadPacking } from "./heads.js";
import type { MultiheadAttentionOptions } from "./multihead-options.js";
import { headCounts } from "./options.js";

/** The projections of the input, by the names of TransformerEngine. */
export interface Projections {
  readonly layernormQkv?: LayerNormLinear;
  readonly qkv?: Linear;
  readonly layernormQuery?: LayerNormLinear;
  readonly queryLayer?: Linear;
  readonly keyValue?: Linear;
}

interface Sizes {
  readonly hiddenSize: number;
  readonly numAttentionHeads: number;
}

/** Creates the linear layers of a module, and returns how their results are divided into heads. */
export function makeProjections(
  backend: Backend,
  { hiddenSize, numAttentionHeads }: Sizes,
  options: MultiheadAttentionOptions,
): { readonly projections: Projections; readonly packing: HeadPacking; readonly proj: Linear } {
  const { kvChannels: width = hiddenSize / numAttentionHeads, numGqaGroups = numAttentionHeads } = options;
  if (!Number.isInteger(width))
    throw new ArgumentError(
      `MultiheadAttention: hiddenSize ${hiddenSize} is not a multiple of numAttentionHeads ${numAttentionHeads}; give one that is, or kvChannels`,
    );
  const group = groupOf("MultiheadAttention", backend, options);
  const heads = { heads: numAttentionHeads, groups: numGqaGroups };
  const counts = headCounts("MultiheadAttention", heads, group);
  const { fuseQkvParams = false } = options;
  const interleaved = fuseQkvParams && options.qkvWeightInterleaved !== false;
  const isCross = options.attentionType === "cross";
  if (group && !interleaved && !isCross && numGqaGroups !== numAttentionHeads)
    throw new ArgumentError(
      `MultiheadAttention: with ${numAttentionHeads} heads of queries and ${numGqaGroups} of keys, ranks divide a weight whose rows are ordered by groups; give fuseQkvParams: true and qkvWeightInterleaved: true`,
    );
  const { dtype, random, bias, sequenceParallel, fuseWgradAccumulation, initMethod } = options;
  const commonOptions = {
    dtype,
    random,
    bias,
    fuseWgradAccumulation,
    ...(group ? { group, sequenceParallel } : {}),
  };
  const column = (pieces: number): LinearOptions => ({
    ...commonOptions,
    initMethod,
    ...(group ? { parallelMode: "column", pieces: interleaved ? 1 : pieces } : {}),
  });
  const { layernormEpsilon: eps, zeroCenteredGamma, normalization } = options;
  const norm = { eps, zeroCenteredGamma, normalization };
  const [queries, keys] = [numAttentionHeads * width, numGqaGroups * width];
  return orDispose((created) => {
    const register = <M extends Module>(layer: M): M => {
      created.push(layer);
      return layer;
    };
    const outer = { backend, hiddenSize, norm: options.inputLayernorm ? norm : undefined, register };
    const projections = isCross
      ? {
          ...inputLayer(outer, queries, column(1), ["layernormQuery", "queryLayer"]),
          keyValue: register(new Linear(backend, hiddenSize, 2 * keys, column(2))),
        }
      : inputLayer(outer, queries + 2 * keys, column(3), ["layernormQkv", "qkv"]);
    const proj = new Linear(backend, queries, hiddenSize, {
      ...commonOptions,
      initMethod: options.outputLayerInitMethod,
      ...(group ? { parallelMode: "row" as const } : {}),
    });
    return { projections, packing: { counts, width, interleaved }, proj };
  });
}

interface InputLayers {
  readonly backend: Backend;
  readonly hiddenSize: number;
  readonly norm: Pick<LayerNormLinearOptions, "eps" | "zeroCenteredGamma" | "normalization"> | undefined;
  /** Registers a layer to be freed if a later one cannot be created. */
  readonly register: <M extends Module>(layer: M) => M;
}

/**
 * Creates the layer that reads the input: a `LayerNormLinear` with a norm, else a `Linear`. The two kinds have different names.
 */
function inputLayer(
  { backend, hiddenSize, norm, register }: InputLayers,
  features: number,
  options: LinearOptions,
  [withNorm, withoutNorm]: readonly [keyof Projections, keyof Projections],
): Projections {
  return norm
    ? { [withNorm]: register(new LayerNormLinear(backend, hiddenSize, features, { ...options, ...norm })) }
    : { [withoutNorm]: register(new Linear(backend, hiddenSize, features, options)) };
}
