/** The AdamW optimizer. */
import { ArgumentError } from "../errors.js";
import { type AdamWStepOptions, adamw, requireAdamWOptions } from "../ops/update/optimizer.js";
import { type Optimized, Optimizer, type OptimizerSlot, type StepTensors } from "./optimizer.js";

/** The options of the operation `adamw`, without `step`. */
export type AdamWOptions = Omit<AdamWStepOptions, "step">;

/**
 * Adam with decoupled weight decay on f32 master parameters. See the operation `adamw` for the formulas.
 *
 * @throws `ArgumentError` for an invalid option value, or an argument that is neither a module nor a map from names to
 * parameters.
 */
export class AdamW extends Optimizer {
  /** The options. They may be replaced between steps, for example by a learning-rate schedule. */
  options: AdamWOptions;

  constructor(optimized: Optimized, options: AdamWOptions) {
    const ownOptions = requireAdamWOptions("AdamW", options);
    super(optimized, ["m", "v"]);
    this.options = ownOptions;
  }

  /** Updates one parameter by the operation `adamw`, with its buffers `m` and `v`. */
  protected override update(tensors: StepTensors, { buffers }: OptimizerSlot, step: number): void {
    const [m, v] = [buffers.get("m"), buffers.get("v")];
    if (!m || !v)
      throw new ArgumentError("AdamW: a slot has no buffers m and v; leave `buffers` of the slots unchanged");
    adamw({ ...tensors, m, v }, { ...this.options, step });
  }
}
