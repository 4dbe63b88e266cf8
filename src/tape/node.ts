/** The nodes of the autograd graph and the arguments of their backward functions. */
import type { Gradients } from "./gradients.js";
import type { ScaleUpdates } from "./scale-updates.js";
import type { Operation, RetainedInputs } from "./uses.js";
import type { Gradient, Value } from "./value.js";
import type { Variable } from "./variable.js";

/** The backward pass that a node's `backward` function takes part in. */
export interface BackwardPass {
  /** @internal The updates of the delayed scales of gradients. They run when the pass ends. */
  readonly updates: ScaleUpdates;
  /** @internal The gradients accumulated so far. When the pass ends, only the gradients of leaves are left. */
  readonly gradients: Gradients;
  /** Keeps a gradient alive until the pass ends. */
  readonly keep: (grad: Gradient) => void;
}

/** Computes the gradients of a function's inputs from the gradients of its results. undefined means no gradient. */
export type Backward = (
  grads: readonly (Gradient | undefined)[],
  pass: BackwardPass,
) => readonly (Gradient | undefined)[];

/** A recorded operation. PyTorch calls it an autograd `Node`. */
export interface Node {
  /**
   * The number of nodes that were created before this one. Descending order is a reverse topological order, in which the
   * backward pass runs the nodes.
   */
  readonly sequence: number;
  readonly inputs: readonly Variable[];
  /** The inputs whose values `backward` reads: all except the variables that a recomputed region captured. */
  readonly directInputs: readonly Variable[];
  /** The inputs whose `value` the forward function has read, so that `backward` may hold the handle. */
  readonly retained: RetainedInputs;
  /** The run of the forward function, if one of `directInputs` has `UseHooks`. */
  readonly operation: Operation | undefined;
  readonly results: readonly Variable[];
  readonly backward: Backward;
  /** The tensors that the node saved for `backward`. The node owns them and disposes of them. */
  readonly saved: readonly (Value | undefined)[];
  readonly quantized: QuantizedGradients;
}

/** Which gradients of a node may be quantized. Default: none. */
export interface QuantizedGradients {
  /** Whether the node's `backward` accepts a quantized gradient of its first result. */
  readonly gradOutput?: boolean;
  /** Whether the node's `backward` returns a quantized gradient of its first input. */
  readonly gradInput?: boolean;
}

/** The key under which a variable stores its node. A field is cheaper than a map from variables to nodes. */
export const GRAD_FN = Symbol("gradFn");

/** The node that computed a variable, unless there is none or its graph is freed. */
export function gradFnOf({ [GRAD_FN]: gradFn }: Variable): Node | undefined {
  return gradFn === "freed" ? undefined : gradFn;
}
