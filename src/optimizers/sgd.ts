/** The optimizer for stochastic gradient descent. */
import { guardReceivers, isObject } from "../brand.js";
import { requireSGDOptions, SGD_OPTIONS, type SGDStepOptions, sgdEach } from "../ops/update/optimizer.js";
import { anyListOf, atLeastZero, needed, nested, optionsOf, text } from "../options.js";
import { type Optimized, Optimizer, type SlotStep } from "./optimizer.js";
import {
  disposeUnless,
  type GroupedOptions,
  mergeOptions,
  type ParameterGroup,
  SlotOptions,
} from "./parameter-groups.js";
import {
  MASTER_OPTIONS,
  type MasterOptions,
  type MomentDType,
  masterOptionsOf,
  momentDType,
} from "./state.js";

/** The dtypes of the states of `SGD`. They cannot be changed later, and are the same for all groups. */
export interface SGDStateOptions extends MasterOptions {
  /**
   * The dtype of the momentum buffer: f32, bf16, or f16 or e4m3 with a scale for each tensor. The step is computed in f32
   * (numerics.md §9.6). Default f32.
   */
  readonly momentumDtype?: MomentDType | undefined;
}

/** The options of the operation `sgd`, without `first`, parameter groups that override them, and the dtypes of the states. */
export type SGDOptions = GroupedOptions<Omit<SGDStepOptions, "first">> & SGDStateOptions;

const checkGroup = optionsOf<ParameterGroup<Omit<SGDStepOptions, "first">>>({
  ...SGD_OPTIONS,
  learningRate: atLeastZero,
  parameters: needed(text),
});
const checkOptions = optionsOf<SGDOptions>({
  ...SGD_OPTIONS,
  ...MASTER_OPTIONS,
  momentumDtype: momentDType,
  groups: anyListOf(nested(checkGroup)),
});

/**
 * The algorithm of `torch.optim.SGD` on f32 master parameters. See the operation `sgd` for the formulas. Masters and momentum
 * may be stored in other dtypes. The constructor is a collective call if masters are f16 and parameters are divided among ranks.
 *
 * @throws `ArgumentError` for an invalid option value, a group without parameters, or an argument that is neither a module nor
 * a map from names to parameters.
 */
export class SGD extends Optimizer {
  /** The options. They may be replaced between steps, for example by a learning-rate schedule, except for dtypes. */
  options: SGDOptions;
  readonly #slotOptions: SlotOptions<Omit<SGDStepOptions, "first">>;

  static {
    guardReceivers(this, (x) => isObject(x) && #slotOptions in x);
  }

  constructor(optimized: Optimized, options: SGDOptions) {
    const ownOptions = checkOptions("SGD", options);
    const { momentumDtype = "f32", masterWeightDtype, storeParamRemainders, ...numbers } = ownOptions;
    const masters = masterOptionsOf("SGD", { masterWeightDtype, storeParamRemainders });
    if (!numbers.groups) requireSGDOptions("SGD", numbers);
    super(optimized, {
      moments: (name) =>
        mergeOptions<Omit<SGDStepOptions, "first">>(numbers, name).momentum ? { m: momentumDtype } : {},
      masters,
    });
    this.options = ownOptions;
    const states = { momentumDtype, ...masters };
    this.#slotOptions = new SlotOptions("SGD", this.slots, requireSGDOptions, states);
    disposeUnless(this, () => this.#slotOptions.requireGroups(ownOptions));
  }

  /** Updates parameters by the operation `sgd`, with their buffers `m` if momentum is used. */
  protected override update(steps: readonly SlotStep[]): void {
    const optionsOf = this.#slotOptions.ofSteps(this.options, (options, step) => ({
      ...options,
      first: step === 1,
    }));
    const listedSteps = steps.map(({ tensors, slot, moments: { m }, step }) => ({
      tensors,
      m,
      options: optionsOf(slot, step),
    }));
    sgdEach(listedSteps);
  }
}
