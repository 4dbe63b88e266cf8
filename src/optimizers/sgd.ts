/** The optimizer for stochastic gradient descent. */
import { requireSGDOptions, SGD_OPTIONS, type SGDStepOptions, sgd } from "../ops/update/optimizer.js";
import { anyListOf, atLeastZero, needed, nested, optionsOf, text } from "../options.js";
import { type Optimized, Optimizer, type OptimizerSlot, type StepTensors } from "./optimizer.js";
import {
  disposeUnless,
  type GroupedOptions,
  optionsFor,
  type ParameterGroup,
  SlotOptions,
} from "./parameter-groups.js";

/** The options of the operation `sgd`, without `first`, and parameter groups that override them. */
export type SGDOptions = GroupedOptions<Omit<SGDStepOptions, "first">>;

const checkGroup = optionsOf<ParameterGroup<Omit<SGDStepOptions, "first">>>({
  ...SGD_OPTIONS,
  learningRate: atLeastZero,
  parameters: needed(text),
});
const checkOptions = optionsOf<SGDOptions>({ ...SGD_OPTIONS, groups: anyListOf(nested(checkGroup)) });

/**
 * The algorithm of `torch.optim.SGD` on f32 master parameters. See the operation `sgd` for the formulas.
 *
 * @throws `ArgumentError` for an invalid option value, a group without parameters, or an argument that is neither a module nor
 * a map from names to parameters.
 */
export class SGD extends Optimizer {
  /** The options. They may be replaced between steps, for example by a learning-rate schedule. */
  options: SGDOptions;
  readonly #slotOptions: SlotOptions<Omit<SGDStepOptions, "first">>;

  constructor(optimized: Optimized, options: SGDOptions) {
    const ownOptions = checkOptions("SGD", options);
    if (!ownOptions.groups) requireSGDOptions("SGD", ownOptions);
    super(optimized, (name) =>
      optionsFor<Omit<SGDStepOptions, "first">>(ownOptions, name).momentum ? ["m"] : [],
    );
    this.options = ownOptions;
    this.#slotOptions = new SlotOptions("SGD", this.slots, requireSGDOptions);
    disposeUnless(this, () => this.#slotOptions.requireGroups(ownOptions));
  }

  /** Updates one parameter by the operation `sgd`, with its buffer `m` if momentum is used. */
  protected override update(tensors: StepTensors, slot: OptimizerSlot, step: number): void {
    const m = slot.buffers.get("m");
    const options = this.#slotOptions.of(this.options, slot);
    sgd({ ...tensors, ...(m ? { m } : {}) }, { ...options, first: step === 1 });
  }
}
