/** The options of TransformerLayer, with TransformerEngine's names. */
import type { AttentionLayout } from "../../backends/ops/attention.js";
import { attentionWindow, probability } from "../../ops/attention/options.js";
import { boolean, type OptionTable, oneOf, optionsOf } from "../../options.js";
import type { Tensor } from "../../tensor/tensor.js";
import { MLP_ACTIVATIONS, type MLPActivation } from "../layer-norm-mlp.js";
import { type AttentionMaskType, type AttentionWindow, maskType } from "./masks.js";
import {
  MULTIHEAD_CALL,
  MULTIHEAD_OPTIONS,
  type MultiheadAttentionCall,
  type MultiheadAttentionOptions,
} from "./multihead-options.js";
import { layout, MASK_OPTIONS } from "./options.js";

/** Options of `TransformerLayer`. All fields are optional. */
export interface TransformerLayerOptions
  extends Omit<MultiheadAttentionOptions, "attentionType" | "inputLayernorm" | "qkvFormat" | "attnMaskType"> {
  /** The probability that an element of the result of attention or of the MLP is dropped. Default 0.1. */
  readonly hiddenDropout?: number | undefined;
  /**
   * The probability that the result of attention or of the MLP is dropped before it is added to the residual, for each index of
   * the first dimension. Kept results are divided by 1 - the probability. Default 0.
   */
  readonly dropPathRate?: number | undefined;
  /** The mask of self-attention. Default "causal". */
  readonly selfAttnMaskType?: AttentionMaskType | undefined;
  /** The mask of attention to `encoderOutput`. Default "no_mask". */
  readonly encDecAttnMaskType?: AttentionMaskType | undefined;
  /** The window of attention to `encoderOutput`. Default: all that the mask shows. */
  readonly encDecWindowSize?: AttentionWindow | undefined;
  /** As `bottomRightDiagonal`, of attention to `encoderOutput`. Default true. */
  readonly encDecBottomRightDiagonal?: boolean | undefined;
  /** Whether residual connections add the results of norms instead of the inputs of norms. Default false. */
  readonly applyResidualConnectionPostLayernorm?: boolean | undefined;
  /** Whether the layer normalizes its result instead of the input of self-attention. Default false. */
  readonly outputLayernorm?: boolean | undefined;
  /** Whether self-attention and the MLP read the same input. Default false. */
  readonly parallelAttentionMlp?: boolean | undefined;
  /** A "decoder" also attends to `encoderOutput`. Default "encoder". */
  readonly layerType?: "encoder" | "decoder" | undefined;
  /** The activation of the MLP. Default "gelu". */
  readonly activation?: MLPActivation | undefined;
  /** The order of the dimensions of the input. Default "sbhd". */
  readonly attnInputFormat?: AttentionLayout | undefined;
}

/** Options of one call of `TransformerLayer`. All fields are optional. */
export interface TransformerLayerCall extends Omit<MultiheadAttentionCall, "qkvFormat" | "attnMaskType"> {
  /** The mask of self-attention. Default: the option of the layer. */
  readonly selfAttnMaskType?: AttentionMaskType | undefined;
  /** The mask of attention to `encoderOutput`. Default: the option of the layer. */
  readonly encDecAttnMaskType?: AttentionMaskType | undefined;
  /** The tensor of an arbitrary mask of attention to `encoderOutput`. */
  readonly encDecAttnMask?: Tensor | undefined;
  /** The window of attention to `encoderOutput`. Default: the option of the layer. */
  readonly encDecWindowSize?: AttentionWindow | undefined;
  /** As `bottomRightDiagonal`, of attention to `encoderOutput`. Default: the option of the layer. */
  readonly encDecBottomRightDiagonal?: boolean | undefined;
}

const MASKS = {
  selfAttnMaskType: maskType,
  encDecAttnMaskType: maskType,
  encDecWindowSize: attentionWindow,
  encDecBottomRightDiagonal: boolean,
} as const;

const {
  attentionType: _,
  inputLayernorm: __,
  qkvFormat: ___,
  attnMaskType: ____,
  ...OF_ATTENTION
} = MULTIHEAD_OPTIONS;

/** Checks the options of `TransformerLayer`. */
export const checkTransformerOptions = optionsOf<TransformerLayerOptions>({
  ...OF_ATTENTION,
  ...MASKS,
  hiddenDropout: probability,
  dropPathRate: probability,
  applyResidualConnectionPostLayernorm: boolean,
  outputLayernorm: boolean,
  parallelAttentionMlp: boolean,
  layerType: oneOf(["encoder", "decoder"]),
  activation: oneOf(Object.keys(MLP_ACTIVATIONS)),
  attnInputFormat: layout,
} as OptionTable<TransformerLayerOptions>);

const { qkvFormat: _____, attnMaskType: ______, ...OF_CALL } = MULTIHEAD_CALL;

/** Checks the options of a call of `TransformerLayer`. */
export const checkTransformerCall = optionsOf<TransformerLayerCall>(
  {
    ...OF_CALL,
    ...MASKS,
    windowSize: MASK_OPTIONS.windowSize,
    encDecAttnMask: MULTIHEAD_CALL.attentionMask,
  } as OptionTable<TransformerLayerCall>,
  "call",
);
