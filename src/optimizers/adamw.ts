/** The AdamW optimizer. */
import { ArgumentError } from "../errors.js";
import { ADAMW_OPTIONS, type AdamWStepOptions, adamw, requireAdamWOptions } from "../ops/update/optimizer.js";
import { anyListOf, atLeastZero, needed, nested, optionsOf, text } from "../options.js";
import { type Optimized, Optimizer, type OptimizerSlot, type StepTensors } from "./optimizer.js";
import { disposeUnless, type GroupedOptions, type ParameterGroup, SlotOptions } from "./parameter-groups.js";

/** The options of the operation `adamw`, without `step`, and parameter groups that override them. */
export type AdamWOptions = GroupedOptions<Omit<AdamWStepOptions, "step">>;

const checkGroup = optionsOf<ParameterGroup<Omit<AdamWStepOptions, "step">>>({
  ...ADAMW_OPTIONS,
  learningRate: atLeastZero,
  parameters: needed(text),
});
const checkOptions = optionsOf<AdamWOptions>({ ...ADAMW_OPTIONS, groups: anyListOf(nested(checkGroup)) });

/**
 * Adam with decoupled weight decay on f32 master parameters. See the operation `adamw` for the formulas.
 *
 * @throws `ArgumentError` for an invalid option value, a group without parameters, or an argument that is neither a module nor
 * a map from names to parameters.
 */
export class AdamW extends Optimizer {
  /** The options. They may be replaced between steps, for example by a learning-rate schedule. */
  options: AdamWOptions;
  readonly #slotOptions: SlotOptions<Omit<AdamWStepOptions, "step">>;

  constructor(optimized: Optimized, options: AdamWOptions) {
    const ownOptions = checkOptions("AdamW", options);
    super(optimized, ["m", "v"]);
    this.options = ownOptions;
    this.#slotOptions = new SlotOptions("AdamW", this.slots, requireAdamWOptions);
    disposeUnless(this, () => this.#slotOptions.requireGroups(ownOptions));
  }

  /** Updates one parameter by the operation `adamw`, with its buffers `m` and `v`. */
  protected override update(tensors: StepTensors, slot: OptimizerSlot, step: number): void {
    const { buffers } = slot;
    const [m, v] = [buffers.get("m"), buffers.get("v")];
    if (!m || !v)
      throw new ArgumentError("AdamW: a slot has no buffers m and v; leave `buffers` of the slots unchanged");
    adamw({ ...tensors, m, v }, { ...this.#slotOptions.of(this.options, slot), step });
  }
}
