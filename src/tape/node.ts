/** One recorded operation, and what its backward function is given: the parts of the graph. */
import type { Gradients } from "./gradients.js";
import type { ScaleUpdates } from "./scale-updates.js";
import type { Gradient, Value } from "./value.js";
import type { Variable } from "./variable.js";

/** What a backward pass hands to the `backward` of each node. */
export interface BackwardPass {
  /** @internal Delayed scales of gradients, updated when the pass ends. */
  readonly updates: ScaleUpdates;
  /** @internal Gradients accumulated so far; only those of leaves are left at the end. */
  readonly gradients: Gradients;
  /** Keeps a gradient alive until the pass ends. */
  readonly keep: (grad: Gradient) => void;
}

/** Maps the gradients of a function's results to those of its inputs; undefined stands for no gradient. */
export type Backward = (
  grads: readonly (Gradient | undefined)[],
  pass: BackwardPass,
) => readonly (Gradient | undefined)[];

/** One recorded operation, PyTorch's autograd `Node`. */
export interface Node {
  /** The number of nodes made before it: the backward pass runs nodes in descending order, which is topological. */
  readonly sequence: number;
  readonly inputs: readonly Variable[];
  readonly results: readonly Variable[];
  readonly backward: Backward;
  /** What it saved for `backward`. The node owns these and disposes of them. */
  readonly saved: readonly (Value | undefined)[];
  readonly quantized: QuantizedGradients;
}

/** Which gradients of a node may be quantized. Default: none. */
export interface QuantizedGradients {
  /** Its `backward` accepts a quantized gradient of the first result. */
  readonly gradOutput?: boolean;
  /** Its `backward` returns a quantized gradient of the first input. */
  readonly gradInput?: boolean;
}

/** The key of a variable's node. It is a field because a map of nodes would cost more than the variables do. */
export const GRAD_FN = Symbol("gradFn");

/** The node that computed a variable, unless there is none or its graph is freed. */
export function gradFnOf({ [GRAD_FN]: gradFn }: Variable): Node | undefined {
  return gradFn === "freed" ? undefined : gradFn;
}
