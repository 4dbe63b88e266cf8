/** The state of a rank of a pipeline during a step. */
import type { VariableLike } from "../../tape/differentiable.js";
import type { Variable } from "../../tape/variable.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";

/** The state of one microbatch on a stage, from its first action to its last. */
export class Microbatch {
  /** Owns all tensors that the actions create. */
  readonly scope = new Scope();
  x: Variable | undefined;
  /** The result of the stage. On the last rank it is the loss. */
  result: Variable | undefined;
  gradOutput: Tensor | undefined;

  constructor(
    readonly number: number,
    /** The index of the stage of this rank. */
    readonly chunk: number,
  ) {
    // each action opens the scope again with `within`
    this.scope.close();
  }

  /** Frees all tensors of the microbatch. The gradient of a received input is freed too; other inputs belong to the caller. */
  dispose(isReceived: boolean): void {
    if (isReceived) this.x?.zeroGrad();
    this.scope.dispose();
  }
}

/** The state of a rank during one step. */
export interface StepState {
  readonly input: ((microbatch: number) => VariableLike) | undefined;
  readonly losses: Tensor[];
  /**
   * In a group of one rank: the tensors that are transferred between its stages, by microbatch, receiving stage and direction.
   */
  readonly transfers: Map<string, Tensor<WideDType>>;
}

/** The direction of a transfer: 1 to the next stage, -1 to the previous stage. */
export type Step = 1 | -1;

export const keyOf = (microbatch: number, chunk: number, to: Step | 0 = 0): string =>
  `${microbatch} ${chunk} ${to}`;
