/** The options of MultiheadAttention, with TransformerEngine's names. */
import { ArgumentError } from "../../errors.js";
import {
  anything,
  atLeastZero,
  boolean,
  callable,
  type Domain,
  describe,
  integer,
  isArray,
  needed,
  type OptionTable,
  oneOf,
  optionsOf,
  ownList,
} from "../../options.js";
import type { VariableLike } from "../../tape/differentiable.js";
import { requireF32, requireScalar } from "../../tensor/require.js";
import type { WeightUse } from "../linear/weight-cache.js";
import { type Normalization, normalizationName } from "../norm.js";
import type { InitMethod } from "../parameter.js";
import type { RotaryAngles } from "../rotary-position-embedding.js";
import {
  ATTENTION_CALL,
  ATTENTION_OPTIONS,
  type AttentionCall,
  type DotProductAttentionOptions,
} from "./options.js";

/** Options of `MultiheadAttention`. All fields are optional. */
export interface MultiheadAttentionOptions extends DotProductAttentionOptions {
  /** The probability that a key is dropped for a query. Default 0.1. */
  readonly attentionDropout?: number | undefined;
  /** The width of a head. Default: hiddenSize / numAttentionHeads. */
  readonly kvChannels?: number | undefined;
  /** A constant added to the variance of the input's norm. Default 1e-5. */
  readonly layernormEpsilon?: number | undefined;
  /** The initial weights of the projections of queries, keys and values. Default: as `Linear`'s. */
  readonly initMethod?: InitMethod | undefined;
  /** The initial weights of the output projection. Default: as `Linear`'s. */
  readonly outputLayerInitMethod?: InitMethod | undefined;
  /** Whether the keys and values come from the input or from another tensor, `encoderOutput`. Default "self". */
  readonly attentionType?: "self" | "cross" | undefined;
  /** Whether the input is normalized first. Default false. */
  readonly inputLayernorm?: boolean | undefined;
  /** The kind of the input's norm. Default "LayerNorm". */
  readonly normalization?: Normalization | undefined;
  /** Whether gamma of norms is stored as gamma - 1. Default false. */
  readonly zeroCenteredGamma?: boolean | undefined;
  /** Whether the linear layers have biases. Default true. */
  readonly bias?: boolean | undefined;
  /**
   * Whether state dictionaries have one weight of queries, keys and values instead of three. Default false. The parameter is one
   * weight in either case.
   */
  readonly fuseQkvParams?: boolean | undefined;
  /** Whether the rows of the fused weight are ordered by groups of heads. Default: true if `fuseQkvParams`. */
  readonly qkvWeightInterleaved?: boolean | undefined;
  /** The norm of the heads of queries and keys. "L2Normalization" has no parameters. Default: none. */
  readonly qkNormType?: "RMSNorm" | "LayerNorm" | "L2Normalization" | undefined;
  /** A constant added to the variance of these norms, or to the sum of squares of "L2Normalization". Default 1e-6. */
  readonly qkNormEps?: number | undefined;
  /** Whether these norms come before the rotary embedding. Default false. */
  readonly qkNormBeforeRope?: boolean | undefined;
  /** Whether gradients of weights are added to their `mainGrad`. Default false. */
  readonly fuseWgradAccumulation?: boolean | undefined;
}

/** Options of one call of `MultiheadAttention`. All fields are optional. */
export interface MultiheadAttentionCall extends AttentionCall, WeightUse {
  /** The input of keys and values, for the attention type "cross". */
  readonly encoderOutput?: VariableLike | undefined;
  /** The rotary angles for both queries and keys, or one for each. Default: no rotary embedding. */
  readonly rotaryPosEmb?: RotaryAngles | readonly [queries: RotaryAngles, keys: RotaryAngles] | undefined;
}

/** The checks of `MultiheadAttentionOptions`. */
export const MULTIHEAD_OPTIONS: OptionTable<MultiheadAttentionOptions> = {
  ...ATTENTION_OPTIONS,
  kvChannels: integer(1),
  layernormEpsilon: atLeastZero,
  initMethod: callable,
  outputLayerInitMethod: callable,
  attentionType: oneOf(["self", "cross"]),
  inputLayernorm: boolean,
  normalization: normalizationName,
  zeroCenteredGamma: boolean,
  bias: boolean,
  fuseQkvParams: boolean,
  qkvWeightInterleaved: boolean,
  qkNormType: oneOf(["RMSNorm", "LayerNorm", "L2Normalization"]),
  qkNormEps: atLeastZero,
  qkNormBeforeRope: boolean,
  fuseWgradAccumulation: boolean,
};

const checkAngles = optionsOf<RotaryAngles>(
  { cos: needed(requireF32), sin: needed(requireF32), interleaved: needed(boolean) },
  "rotaryPosEmb",
);

/** Checks rotary angles. Returns a pair: the angles of queries and the angles of keys. */
const rotaryAngles: Domain = (caller, name, value) => {
  const factors: readonly unknown[] = isArray(value)
    ? ownList(caller, name, value, (angles) => angles)
    : [value, value];
  if (factors.length !== 2)
    throw new ArgumentError(
      `${caller}: ${name} is ${describe(value)}; it must be the result of a RotaryPositionEmbedding, or two`,
    );
  return factors.map((angles) => checkAngles(caller, angles as RotaryAngles, name));
};

/** The checks of `MultiheadAttentionCall`. */
export const MULTIHEAD_CALL: OptionTable<MultiheadAttentionCall> = {
  ...ATTENTION_CALL,
  isFirstMicrobatch: boolean,
  skipFp8WeightUpdate: requireScalar,
  encoderOutput: anything,
  rotaryPosEmb: rotaryAngles,
};

/** Checks the options of a call of `MultiheadAttention`. */
export const checkMultiheadCall = optionsOf<MultiheadAttentionCall>(MULTIHEAD_CALL, "call");
