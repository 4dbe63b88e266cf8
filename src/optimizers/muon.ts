/** The Muon optimizer. */
import { guardReceivers, isObject } from "../brand.js";
import { ArgumentError, ShapeError, UnsupportedError } from "../errors.js";
import type { Parameter } from "../modules/parameter.js";
import { zeros } from "../ops/create.js";
import { scaled } from "../ops/elementwise/operators.gen.js";
import { expand } from "../ops/layout/copy-slice.js";
import {
  NEWTON_SCHULZ_OPTIONS,
  type NewtonSchulzOptions,
  newtonSchulz,
  scheduleOf,
} from "../ops/update/newton-schulz.js";
import { sgd } from "../ops/update/optimizer.js";
import {
  anyListOf,
  atLeastZero,
  boolean,
  decayRate,
  needed,
  nested,
  type OptionTable,
  oneOf,
  optionsOf,
  text,
} from "../options.js";
import { Scope } from "../tensor/scope.js";
import type { Shape } from "../tensor/shape.js";
import { type Optimized, Optimizer, type SlotStep } from "./optimizer.js";
import { disposeUnless, type GroupedOptions, type ParameterGroup, SlotOptions } from "./parameter-groups.js";

/** Options of one step of `Muon`, in addition to the options of `newtonSchulz`. Numbers are rounded to f32. */
export interface MuonStepOptions extends NewtonSchulzOptions {
  /** The learning rate. It multiplies the update that is subtracted from the parameter. */
  readonly learningRate: number;
  /** The factor of the momentum buffer, at least 0 and below 1. Default 0.95. */
  readonly momentum?: number | undefined;
  /** Whether to use Nesterov momentum. Default true. */
  readonly nesterov?: boolean | undefined;
  /** The factor of the parameter as it is added to the update. Default 0. */
  readonly weightDecay?: number | undefined;
  /**
   * The factor of the orthogonal matrix [M, N], as `adjust_lr_fn` of `torch.optim.Muon`. `original`: sqrt(max(1, M / N)).
   * `matchRmsAdamW`: 0.2 sqrt(max(M, N)), which gives an update the usual size of an update of AdamW. Default `original`.
   */
  readonly adjustLearningRate?: "original" | "matchRmsAdamW" | undefined;
}

/** The options of a step of Muon, and parameter groups that override them. The default of `dtype` is bf16. */
export type MuonOptions = GroupedOptions<MuonStepOptions>;

const MUON_OPTIONS: OptionTable<MuonStepOptions> = {
  ...NEWTON_SCHULZ_OPTIONS,
  learningRate: needed(atLeastZero),
  momentum: decayRate,
  nesterov: boolean,
  weightDecay: atLeastZero,
  adjustLearningRate: oneOf(["original", "matchRmsAdamW"]),
};
const checkGroup = optionsOf<ParameterGroup<MuonStepOptions>>({
  ...MUON_OPTIONS,
  learningRate: atLeastZero,
  parameters: needed(text),
});
const checkOptions = optionsOf<MuonOptions>({ ...MUON_OPTIONS, groups: anyListOf(nested(checkGroup)) });
const checkStep = optionsOf(MUON_OPTIONS);

/**
 * Momentum whose update is orthogonalized by `newtonSchulz`, with decoupled weight decay, on f32 masters of matrices (numerics.md
 * §9.5). The algorithm is `torch.optim.Muon`. Give biases, norms and embeddings to another optimizer, by a map from names to
 * parameters.
 *
 * @throws `ArgumentError` for an invalid option value, a group without parameters, or an argument that is neither a module nor
 * a map from names to parameters, `ShapeError` for a parameter that is not a matrix, `UnsupportedError` for one that is divided
 * among ranks.
 */
export class Muon extends Optimizer {
  /** The options. They may be replaced between steps, for example by a learning-rate schedule. */
  options: MuonOptions;
  readonly #slotOptions: SlotOptions<MuonStepOptions>;

  static {
    guardReceivers(this, (x) => isObject(x) && #slotOptions in x);
  }

  constructor(optimized: Optimized, options: MuonOptions) {
    const ownOptions = checkOptions("Muon", options);
    super(optimized, { moments: () => ({ m: "f32" }) });
    this.options = ownOptions;
    this.#slotOptions = new SlotOptions("Muon", this.slots, requireMuonOptions);
    disposeUnless(this, () => {
      for (const [name, { parameter }] of this.slots) requireWholeMatrix(name, parameter);
      this.#slotOptions.requireGroups(ownOptions);
    });
  }

  /** Updates one parameter after the other, because each takes temporary matrices. */
  protected override update(steps: readonly SlotStep[]): void {
    for (const step of steps) this.#updateOne(step);
  }

  /** Updates one parameter, with its buffer `m`. */
  #updateOne({ tensors, slot, moments: { m } }: SlotStep): void {
    using _ = new Scope();
    if (!m) throw new ArgumentError("Muon: a slot has no buffer m; leave `buffers` of the slots unchanged");
    requireWholeMatrix("a parameter", slot.parameter);
    const { learningRate, momentum, nesterov, weightDecay, adjustLearningRate, ...iteration } =
      requireMuonOptions("Muon", this.#slotOptions.optionsOf(this.options, slot));
    const { parameter, grad, copy, gradScale, noop } = tensors;
    const { shape, backend } = parameter;
    // a step of SGD from zeros with learning rate 1 updates m and leaves the negative momentum; the last factor restores its sign
    const direction = expand(zeros(backend, "f32", [1, 1]), shape);
    const rule = { learningRate: 1, momentum: momentum ?? 0.95 };
    const hasMomentum = Math.fround(rule.momentum) !== 0;
    sgd(
      { parameter: direction, grad, gradScale, noop, m },
      { ...rule, nesterov: hasMomentum && (nesterov ?? true) },
    );
    const orthogonal = newtonSchulz(direction, { dtype: "bf16", ...iteration });
    const update = scaled(orthogonal, -rateFactor(shape, adjustLearningRate), { outDtype: "f32" });
    sgd({ parameter, grad: update, copy, noop }, { learningRate, weightDecay });
  }
}

/** Returns a copy of options of Muon. Throws `ArgumentError` for an invalid one or an invalid combination. */
function requireMuonOptions(user: string, options: MuonStepOptions): MuonStepOptions {
  const ownOptions = checkStep(user, options);
  scheduleOf(user, ownOptions);
  return ownOptions;
}

/** Throws for a parameter that is not a matrix, or of which this rank has only a part. */
function requireWholeMatrix(name: string, { shape, ranks, sharding }: Parameter): void {
  if (shape.length !== 2)
    throw new ShapeError(
      `Muon: ${name} has shape [${shape}]; it must be a matrix. Give it to another optimizer, such as AdamW`,
    );
  if ([ranks, sharding].some((division) => division && division.group.size > 1))
    throw new UnsupportedError(
      "Muon",
      `${name} is divided among ranks, and its update needs the full matrix; give it to another optimizer, such as AdamW`,
    );
}

/** Returns the factor of the orthogonal matrix, computed in f64. */
function rateFactor(shape: Shape, rule: MuonStepOptions["adjustLearningRate"] = "original"): number {
  const [height = 0, width = 0] = shape;
  if (rule === "matchRmsAdamW") return 0.2 * Math.sqrt(Math.max(height, width));
  return Math.sqrt(Math.max(1, width === 0 ? 1 : height / width));
}
