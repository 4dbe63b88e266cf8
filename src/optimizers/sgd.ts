/** Stochastic gradient descent. */
import { requireSGDOptions, type SGDStepOptions, sgd } from "../ops/update/optimizer.js";
import { type Optimized, Optimizer, type OptimizerSlot, type StepTensors } from "./optimizer.js";

/** As the operation `sgd` takes them, the step aside. */
export type SGDOptions = Omit<SGDStepOptions, "first">;

/**
 * torch.optim.SGD with f32 master parameters; see `sgd` for the formulas.
 *
 * @throws `ArgumentError` for an option outside its domain, and for what is neither a module nor a map from names to
 * parameters.
 */
export class SGD extends Optimizer {
  /** May be replaced between steps, by a schedule. */
  options: SGDOptions;

  constructor(optimized: Optimized, options: SGDOptions) {
    requireSGDOptions("SGD", options);
    super(optimized, options.momentum ? ["m"] : []);
    this.options = options;
  }

  /** Steps by `sgd`, with the buffer `m` where there is momentum. */
  protected override update(tensors: StepTensors, { buffers }: OptimizerSlot, step: number): void {
    const m = buffers.get("m");
    sgd({ ...tensors, ...(m ? { m } : {}) }, { ...this.options, first: step === 1 });
  }
}
