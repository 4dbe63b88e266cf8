/** The AdamW optimizer. */
import { guardReceivers, isObject } from "../brand.js";
import { ArgumentError } from "../errors.js";
import {
  ADAMW_OPTIONS,
  type AdamWStepOptions,
  adamwEach,
  requireAdamWOptions,
} from "../ops/update/optimizer.js";
import { anyListOf, atLeastZero, needed, nested, type OptionTable, optionsOf, text } from "../options.js";
import { type Optimized, Optimizer, type SlotStep } from "./optimizer.js";
import { disposeUnless, type GroupedOptions, type ParameterGroup, SlotOptions } from "./parameter-groups.js";
import {
  MASTER_OPTIONS,
  type MasterOptions,
  type MomentDType,
  masterOptionsOf,
  momentDType,
} from "./state.js";

/** The dtypes of the states of `AdamW`. They cannot be changed later, and are the same for all groups. */
export interface AdamWStateOptions extends MasterOptions {
  /**
   * The dtype of the moving average of the gradient: f32, bf16, or f16 or e4m3 with a scale for each tensor. The step is computed
   * in f32 (numerics.md §9.6). Default f32.
   */
  readonly expAvgDtype?: MomentDType | undefined;
  /** The dtype of the moving average of the squared gradient, as `expAvgDtype`. Default f32. */
  readonly expAvgSqDtype?: MomentDType | undefined;
}

/** The options of the operation `adamw`, without `step`, parameter groups that override them, and the dtypes of the states. */
export type AdamWOptions = GroupedOptions<Omit<AdamWStepOptions, "step">> & AdamWStateOptions;

const STATE_OPTIONS: OptionTable<AdamWStateOptions> = {
  ...MASTER_OPTIONS,
  expAvgDtype: momentDType,
  expAvgSqDtype: momentDType,
};
const checkGroup = optionsOf<ParameterGroup<Omit<AdamWStepOptions, "step">>>({
  ...ADAMW_OPTIONS,
  learningRate: atLeastZero,
  parameters: needed(text),
});
const checkOptions = optionsOf<AdamWOptions>({
  ...ADAMW_OPTIONS,
  ...STATE_OPTIONS,
  groups: anyListOf(nested(checkGroup)),
});

/**
 * Adam with decoupled weight decay on f32 master parameters. See the operation `adamw` for the formulas. Masters and moments may
 * be stored in other dtypes. The constructor is a collective call if masters are f16 and parameters are divided among ranks.
 *
 * @throws `ArgumentError` for an invalid option value, a group without parameters, or an argument that is neither a module nor
 * a map from names to parameters.
 */
export class AdamW extends Optimizer {
  /** The options. They may be replaced between steps, for example by a learning-rate schedule, except for dtypes. */
  options: AdamWOptions;
  readonly #slotOptions: SlotOptions<Omit<AdamWStepOptions, "step">>;

  static {
    guardReceivers(this, (x) => isObject(x) && #slotOptions in x);
  }

  constructor(optimized: Optimized, options: AdamWOptions) {
    const ownOptions = checkOptions("AdamW", options);
    const { expAvgDtype = "f32", expAvgSqDtype = "f32" } = ownOptions;
    const masters = masterOptionsOf("AdamW", ownOptions);
    super(optimized, { moments: () => ({ m: expAvgDtype, v: expAvgSqDtype }), masters });
    this.options = ownOptions;
    this.#slotOptions = new SlotOptions("AdamW", this.slots, requireAdamWOptions, {
      ...{ expAvgDtype, expAvgSqDtype },
      ...masters,
    });
    disposeUnless(this, () => this.#slotOptions.requireGroups(ownOptions));
  }

  /** Updates parameters by the operation `adamw`, with their buffers `m` and `v`. */
  protected override update(steps: readonly SlotStep[]): void {
    const optionsOf = this.#slotOptions.ofSteps(this.options, (options, step) => ({ ...options, step }));
    const listedSteps = steps.map(({ tensors, slot, moments: { m, v }, step }) => {
      if (!m || !v)
        throw new ArgumentError(
          "AdamW: a slot has no buffers m and v; leave `buffers` of the slots unchanged",
        );
      return { tensors, m, v, options: optionsOf(slot, step) };
    });
    adamwEach(listedSteps);
  }
}
