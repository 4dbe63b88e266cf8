/** Stochastic gradient descent. */
import { requireSGDOptions, type SGDStepOptions, sgd } from "../ops/update/optimizer.js";
import { type Optimized, Optimizer, type OptimizerSlot, type StepTensors } from "./optimizer.js";

/** The options of the operation `sgd`, without `first`. */
export type SGDOptions = Omit<SGDStepOptions, "first">;

/**
 * torch.optim.SGD with f32 master parameters; see `sgd` for the formulas.
 *
 * @throws `ArgumentError` for an option outside its domain, and for anything but a module or a map from names to parameters.
 */
export class SGD extends Optimizer {
  /** May be replaced between steps, for example by a schedule. */
  options: SGDOptions;

  constructor(optimized: Optimized, options: SGDOptions) {
    requireSGDOptions("SGD", options);
    super(optimized, options.momentum ? ["m"] : []);
    this.options = options;
  }

  /** Runs `sgd`, with the buffer `m` if there is momentum. */
  protected override update(tensors: StepTensors, { buffers }: OptimizerSlot, step: number): void {
    const m = buffers.get("m");
    sgd({ ...tensors, ...(m ? { m } : {}) }, { ...this.options, first: step === 1 });
  }
}
