/** The options with which layers of a model are created, and the arguments of their calls. */
import type { InferenceParams } from "../../modules/attention/inference-params.js";
import type { WeightUse } from "../../modules/linear/weight-cache.js";
import type { Module, ModuleOptions } from "../../modules/module.js";
import type { InitMethod } from "../../modules/parameter.js";
import type { RotaryAngles } from "../../modules/rotary-position-embedding.js";
import type { Complete } from "../../options.js";
import type { RotaryConfig } from "../config/config.js";

/** The options of all modules of a model. */
export interface LayerOptions extends Complete<ModuleOptions> {
  /** Computes initial weights. */
  readonly initMethod: InitMethod;
  /** The constant that norms add to the mean square. */
  readonly eps: number;
  /** Whether the weights of norms hold gamma - 1. */
  readonly zeroCenteredGamma: boolean;
  /** The last dimension of the input and of the result. */
  readonly hiddenSize: number;
  /** Registers a module that has parameters, and returns it. If the model cannot be created, the module is disposed of. */
  readonly own: <M extends Module>(module: M) => M;
}

/** The arguments of a layer's call other than its input. */
export interface LayerCall {
  /** Returns the angles of all positions of this call. */
  readonly angles: (rotary: RotaryConfig) => RotaryAngles;
  /** The cache of keys and values. */
  readonly inferenceParams: InferenceParams | undefined;
  /** Whether linear layers cache their quantized weights or use the cached ones. */
  readonly weightUse: Pick<WeightUse, "isFirstMicrobatch">;
}
