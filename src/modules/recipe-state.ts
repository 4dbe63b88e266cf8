/** The state of one layer under a recipe: a quantizer for each tensor role and, under delayed scaling, scales and amaxes. */
import type { Backend } from "../backends/backend.js";
import { zeros } from "../ops/create.js";
import { execute } from "../ops/execute.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { RandomState } from "../quantizers/random-state.js";
import { type AmaxReductionGroup, rowShard } from "../quantizers/shard.js";
import { isDelayed } from "../recipes/is-delayed.js";
import {
  plainQuantizer,
  type QuantizerState,
  quantizerFor,
  roleQuantizerFor,
} from "../recipes/quantizer-for.js";
import type { Recipe } from "../recipes/recipe.js";
import {
  copiesOf,
  isPlain,
  type LayerPosition,
  type OperandQuantizer,
  type RoleCopies,
} from "../recipes/role.js";
import {
  type BackwardRole,
  type ForwardRole,
  type Pass,
  passOf,
  ROLES,
  type Role,
} from "../recipes/table.js";
import type { BackwardPass } from "../tape/node.js";
import type { Sharding } from "../tape/sharding.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import { orDispose } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";
import { DelayedState } from "./delayed-state.js";
import type { LayerInspection } from "./inspection/layer-inspection.js";
import { persistent } from "./parameter.js";
import type { QuantizationSnapshot } from "./quantization-state.js";
import type { TensorParallel } from "./tensor-parallel/tensor-parallel.js";

/**
 * The quantization of the backward pass that belongs to one forward pass. It stays the same if the layer changes its recipe
 * between the two.
 */
export interface BackwardQuantization {
  /**
   * Returns the quantizer of a role. `gathered` says that the tensor consists of the rows of all ranks. Throws `ArgumentError`
   * unless one quantizer makes both copies.
   */
  quantizer(role: BackwardRole, gathered?: boolean): Quantizer;
  /** Returns how each copy of a role's tensor is quantized. */
  copies(role: BackwardRole, gathered?: boolean): RoleCopies;
  /**
   * Registers the pending scale updates. Call it before gradients are quantized. `group` is the amax reduction group of the
   * forward pass.
   */
  registerUpdates(pass: BackwardPass, group: AmaxReductionGroup | undefined): void;
  /** The tensors to dispose of after the backward pass. */
  readonly saved: readonly Tensor[];
}

/** The quantization of one call of a layer. */
export interface CallQuantization {
  readonly recipe: Recipe;
  /** Whether one quantizer makes both copies of each operand. */
  readonly isPlain: boolean;
  /**
   * Returns the quantizer of a role. `gathered` says that the tensor consists of the rows of all ranks. Throws `ArgumentError`
   * unless one quantizer makes both copies.
   */
  quantizer(role: ForwardRole, gathered?: boolean): Quantizer;
  /** Returns how each copy of a role's tensor is quantized. */
  copies(role: ForwardRole, gathered?: boolean): RoleCopies;
  /** Returns the quantization of the backward pass of this call. */
  forBackward(): BackwardQuantization;
  /** Returns the quantizer of the weight, or of this rank's rows of it if it is sharded. */
  weightQuantizer(sharding: Sharding | undefined): Quantizer;
  /** Reduces the recorded amax of this rank's rows to the amax of the full weight. */
  reduceWeightAmax(sharding: Sharding): void;
  /** The cached weight of the first run, if this call repeats a first run that used the cache. */
  readonly weight?: QuantizedTensor | undefined;
  /** The cached columnwise copy of the weight, if it has a quantizer of its own. */
  readonly columnwiseWeight?: QuantizedTensor | undefined;
}

/** How this rank's rows of a sharded weight are quantized before the call that uses them. */
export interface RowsQuantization {
  readonly state: RecipeState;
  readonly quantizer: Quantizer;
  /** Under delayed scaling: the version of the scale, and the amax of the rows, which the call will record. */
  readonly delayed: { readonly version: number; readonly amax: Tensor<"f32"> } | undefined;
  /** Whether the backward pass needs the columnwise copy. */
  readonly columnwise: boolean;
}

type Scales = Pick<QuantizerState, "scale" | "amax">;

/** The layer that a state belongs to. */
interface StateOwner {
  readonly backend: Backend;
  readonly random: RandomState;
  readonly parallel?: TensorParallel | undefined;
  readonly position: LayerPosition;
  /** Returns how an `Inspector` changes and observes the quantizers of the layer, or undefined. */
  readonly inspectionOf: () => LayerInspection | undefined;
}

/** The quantizers of one layer under `recipe`. Corresponds to TransformerEngine's `RecipeState`. */
export class RecipeState implements CallQuantization {
  readonly #random: RandomState;
  readonly #parallel: TensorParallel | undefined;
  readonly #position: LayerPosition;
  readonly #quantizers: ReadonlyMap<Role, OperandQuantizer>;
  /** The quantizers of tensors whose rows are gathered before they are quantized. Each is created at its first use. */
  readonly #gatheredQuantizers = new Map<Role, OperandQuantizer>();
  readonly #inspectionOf: StateOwner["inspectionOf"];
  /** The quantizer of this rank's rows of a sharded weight. It is created at its first use. */
  #rowsQuantizer: Quantizer | undefined;
  /** The scales and amax histories of each pass. Undefined unless the recipe is delayed scaling. */
  readonly #states: Readonly<Record<Pass, DelayedState>> | undefined;

  constructor(
    readonly recipe: Recipe,
    { backend, random, parallel, position, inspectionOf }: StateOwner,
    snapshot?: QuantizationSnapshot,
  ) {
    this.#random = random;
    this.#parallel = parallel;
    this.#position = position;
    this.#inspectionOf = inspectionOf;
    if (isDelayed(recipe)) {
      const createState = (pass: Pass): DelayedState =>
        new DelayedState(backend, recipe, { pass, slots: ROLES[pass].length }, snapshot?.[pass]);
      this.#states = orDispose((created) => {
        const forward = createState("forward");
        created.push(forward);
        return { forward, backward: createState("backward") };
      });
    }
    const roles = [...ROLES.forward, ...ROLES.backward];
    this.#quantizers = new Map(roles.map((role) => [role, this.#makeOperandQuantizer(role)]));
  }

  get isPlain(): boolean {
    return OPERANDS.every((role) => isPlain(copiesOf(this.#roleQuantizer(role, false), role, "none")));
  }

  /** The scales of the forward tensors. Undefined unless the recipe is delayed scaling. */
  get forward(): DelayedState | undefined {
    return this.#states?.forward;
  }

  quantizer(role: Role, gathered = false): Quantizer {
    return plainQuantizer(role, this.#roleQuantizer(role, gathered));
  }

  copies(role: Role, gathered = false): RoleCopies {
    return copiesOf(this.#roleQuantizer(role, gathered), role, this.recipe.backwardOverride);
  }

  #roleQuantizer(role: Role, gathered: boolean, inspection = this.#inspectionOf()): OperandQuantizer {
    const quantizer = gathered
      ? this.#gatheredQuantizer(role)
      : (this.#quantizers.get(role) as OperandQuantizer);
    return inspection ? inspection.operand(role, quantizer) : quantizer;
  }

  #gatheredQuantizer(role: Role): OperandQuantizer {
    const quantizer = this.#gatheredQuantizers.get(role) ?? this.#makeOperandQuantizer(role, true);
    this.#gatheredQuantizers.set(role, quantizer);
    return quantizer;
  }

  /**
   * Returns the quantizer of a forward tensor that uses `scales` [3] and records no amax. Returns undefined unless the recipe is
   * delayed scaling.
   */
  operandWith(scales: Tensor<"f32">, role: ForwardRole, gathered = false): OperandQuantizer | undefined {
    if (!isDelayed(this.recipe)) return undefined;
    const scale = scales.view(slotOf(role), [1]);
    return this.#makeWith(role, gathered, { scale, amax: undefined }, this.#inspectionOf());
  }

  weightQuantizer(sharding: Sharding | undefined): Quantizer {
    if (!sharding) return this.quantizer("weight");
    this.#rowsQuantizer ??= this.#makeRowsQuantizer(sharding, this.#scalesOf("weight"));
    return this.#observed(this.#rowsQuantizer);
  }

  /** As `weightQuantizer` for a sharded weight, with the scale from `scales` [3] and without recording an amax. */
  rowsQuantizerWith(scales: Tensor<"f32">, sharding: Sharding): Quantizer {
    const state = { scale: scales.view(slotOf("weight"), [1]), amax: undefined };
    return this.#observed(this.#makeRowsQuantizer(sharding, state));
  }

  /** Returns a quantizer of this rank's rows of the weight that reports to the `Inspector`, if there is one. */
  #observed(quantizer: Quantizer): Quantizer {
    return this.#inspectionOf()?.observed("weight", quantizer) ?? quantizer;
  }

  /**
   * Returns how to quantize the rows of a weight before the call that uses them. Nothing is recorded until `recordAmax`. The
   * caller disposes of the amax.
   */
  rowsQuantization(sharding: Sharding, columnwise: boolean): RowsQuantization {
    const forward = this.#states?.forward;
    if (!forward)
      return { state: this, quantizer: this.weightQuantizer(sharding), delayed: undefined, columnwise };
    const amax = persistent(zeros(forward.scale.backend, "f32", [1]));
    const rows = this.#makeRowsQuantizer(sharding, { scale: this.#scalesOf("weight").scale, amax });
    const quantizer = this.#observed(rows);
    return { state: this, quantizer, delayed: { version: forward.version, amax }, columnwise };
  }

  /** Whether `rowsQuantization` would give the same codes now. */
  isUnchanged({ state, delayed }: RowsQuantization): boolean {
    return state === this && delayed?.version === this.#states?.forward.version;
  }

  /** Records the amax of rows that were quantized before the call. */
  recordAmax({ delayed }: RowsQuantization): void {
    const weightAmax = this.#scalesOf("weight").amax;
    if (!delayed || !weightAmax) return;
    const { amax } = delayed;
    const amaxes = zeros(amax.backend, "f32", [2]).paste(weightAmax, 0).paste(amax, 1);
    execute(amax.backend, "amax", { x: amaxes, out: weightAmax });
    amaxes.dispose();
    amax.dispose();
  }

  reduceWeightAmax({ group }: Sharding): void {
    const { amax } = this.#scalesOf("weight");
    if (amax && group.size > 1) group.reduceMax([amax]);
  }

  forBackward(): BackwardQuantization {
    const state = this.#states?.backward;
    // an inspector that is set or disposed of before the backward pass does not change that pass
    const inspection = this.#inspectionOf() ?? NO_INSPECTION;
    // new handles, because this state may be replaced and disposed of before the backward pass
    const readHandles = (views: readonly Tensor<"f32">[]): readonly Tensor<"f32">[] =>
      views.map((view) => view.reshape(view.shape));
    const [scales, amaxes] = state ? [readHandles(state.scales), readHandles(state.amaxes)] : [[], []];
    const operand = (role: BackwardRole, gathered = false): OperandQuantizer => {
      if (!state?.isDisposed) return this.#roleQuantizer(role, gathered, inspection);
      const slot = slotOf(role);
      return this.#makeWith(role, gathered, { scale: scales[slot], amax: amaxes[slot] }, inspection);
    };
    return {
      quantizer: (role, gathered) => plainQuantizer(role, operand(role, gathered)),
      copies: (role, gathered) => copiesOf(operand(role, gathered), role, this.recipe.backwardOverride),
      registerUpdates: (pass, group) => {
        if (state) pass.updates.add(state, group);
      },
      saved: [...scales, ...amaxes],
    };
  }

  snapshotSync(): QuantizationSnapshot | undefined {
    const states = this.#states;
    return states && { forward: states.forward.snapshotSync(), backward: states.backward.snapshotSync() };
  }

  dispose(): void {
    this.#states?.forward.dispose();
    this.#states?.backward.dispose();
  }

  /** Returns the current scale and amax of a role. Both are undefined unless the recipe is delayed scaling. */
  #scalesOf(role: Role): Scales {
    const [slot, state] = [slotOf(role), this.#states?.[passOf(role)]];
    return { scale: state?.scales[slot], amax: state?.amaxes[slot] };
  }

  #makeRowsQuantizer(sharding: Sharding, scales: Scales): Quantizer {
    const shard = rowShard(sharding, this.#parallel?.shard("weight"));
    return quantizerFor(this.recipe, "weight", { random: this.#random, ...scales, shard });
  }

  #makeOperandQuantizer(role: Role, gathered = false): OperandQuantizer {
    const state = this.#stateOf(role, gathered, this.#scalesOf(role));
    return roleQuantizerFor(this.recipe, role, state, this.#position);
  }

  #makeWith(
    role: Role,
    gathered: boolean,
    scales: Scales,
    inspection: LayerInspection | undefined,
  ): OperandQuantizer {
    const quantizer = quantizerFor(this.recipe, role, this.#stateOf(role, gathered, scales));
    return inspection ? inspection.operand(role, quantizer) : quantizer;
  }

  #stateOf(role: Role, gathered: boolean, scales: Scales): QuantizerState {
    const parallel = gathered ? undefined : this.#parallel;
    const gathersCodes = (role === "input" || role === "gradOutput") && parallel?.gathers(role) !== undefined;
    const division = parallel ? { shard: parallel.shard(role), gathered: gathersCodes } : {};
    return { random: this.#random, ...scales, ...division };
  }
}

/** The inspection of a layer without an `Inspector`. */
const NO_INSPECTION: LayerInspection = {
  disables: false,
  operand: (_, quantizer) => quantizer,
  observed: (_, quantizer) => quantizer,
};

/** The roles of the operands of products. */
const OPERANDS = ["input", "weight", "gradOutput"] as const;

/** Returns the index of a role's scale among the scales of its pass. */
function slotOf(role: Role): number {
  return (ROLES[passOf(role)] as readonly Role[]).indexOf(role);
}
