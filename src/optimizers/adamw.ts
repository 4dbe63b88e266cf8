/** AdamW. */
import { ArgumentError } from "../errors.js";
import { type AdamWStepOptions, adamw, requireAdamWOptions } from "../ops/update/optimizer.js";
import { type Optimized, Optimizer, type OptimizerSlot, type StepTensors } from "./optimizer.js";

/** The options of the operation `adamw`, without the step. */
export type AdamWOptions = Omit<AdamWStepOptions, "step">;

/**
 * Adam with decoupled weight decay and f32 master parameters; see `adamw` for the formulas.
 *
 * @throws `ArgumentError` for an option outside its domain, and for anything but a module or a map from names to parameters.
 */
export class AdamW extends Optimizer {
  /** May be replaced between steps, for example by a schedule. */
  options: AdamWOptions;

  constructor(optimized: Optimized, options: AdamWOptions) {
    requireAdamWOptions("AdamW", options);
    super(optimized, ["m", "v"]);
    this.options = options;
  }

  /** Runs `adamw`, with the buffers `m` and `v`. */
  protected override update(tensors: StepTensors, { buffers }: OptimizerSlot, step: number): void {
    const [m, v] = [buffers.get("m"), buffers.get("v")];
    if (!m || !v) throw new ArgumentError("AdamW: a parameter has lost its buffers");
    adamw({ ...tensors, m, v }, { ...this.options, step });
  }
}
