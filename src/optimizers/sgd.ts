/** The optimizer for stochastic gradient descent. */
import { requireSGDOptions, type SGDStepOptions, sgd } from "../ops/update/optimizer.js";
import { type Optimized, Optimizer, type OptimizerSlot, type StepTensors } from "./optimizer.js";

/** The options of the operation `sgd`, without `first`. */
export type SGDOptions = Omit<SGDStepOptions, "first">;

/**
 * The algorithm of `torch.optim.SGD` on f32 master parameters. See the operation `sgd` for the formulas.
 *
 * @throws `ArgumentError` for an invalid option value, or an argument that is neither a module nor a map from names to
 * parameters.
 */
export class SGD extends Optimizer {
  /** The options. They may be replaced between steps, for example by a learning-rate schedule. */
  options: SGDOptions;

  constructor(optimized: Optimized, options: SGDOptions) {
    const ownOptions = requireSGDOptions("SGD", options);
    super(optimized, ownOptions.momentum ? ["m"] : []);
    this.options = ownOptions;
  }

  /** Updates one parameter by the operation `sgd`, with its buffer `m` if momentum is used. */
  protected override update(tensors: StepTensors, { buffers }: OptimizerSlot, step: number): void {
    const m = buffers.get("m");
    sgd({ ...tensors, ...(m ? { m } : {}) }, { ...this.options, first: step === 1 });
  }
}
