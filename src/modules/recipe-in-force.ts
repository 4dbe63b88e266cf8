/** The recipe that is in force for one layer: a quantizer for each tensor role and, under delayed scaling, the scales. */
import type { Backend } from "../backends/backend.js";
import { zeros } from "../ops/create.js";
import { execute } from "../ops/execute.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { RandomState } from "../quantizers/random-state.js";
import type { AmaxReductionGroup } from "../quantizers/shard.js";
import { isDelayed } from "../recipes/is-delayed.js";
import { type QuantizerState, quantizerFor } from "../recipes/quantizer-for.js";
import type { Recipe } from "../recipes/recipe.js";
import {
  type BackwardRole,
  type ForwardRole,
  type Pass,
  passOf,
  ROLES,
  type Role,
} from "../recipes/table.js";
import type { BackwardPass } from "../tape/node.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import { orDispose } from "../tensor/scope.js";
import type { Tensor } from "../tensor/tensor.js";
import { DelayedState } from "./delayed-state.js";
import { persistent } from "./parameter.js";
import type { QuantizationSnapshot } from "./quantization-state.js";
import { type Sharding, shardOf } from "./sharding.js";
import type { TensorParallel } from "./tensor-parallel/tensor-parallel.js";

/**
 * The quantization of the backward pass that belongs to one forward pass. It stays the same if the layer changes its recipe
 * between the two.
 */
export interface BackwardQuantization {
  /** Returns the quantizer of a role. `whole` says that the tensor is a whole one, gathered from the rows of all ranks. */
  quantizer(role: BackwardRole, whole?: boolean): Quantizer;
  /**
   * Registers the pending scale updates. Call it before gradients are quantized. `group` is the amax reduction group of the
   * forward pass.
   */
  enter(pass: BackwardPass, group: AmaxReductionGroup | undefined): void;
  /** The tensors to dispose of after the backward pass. */
  readonly saved: readonly Tensor[];
}

/** The quantization of one call of a layer. */
export interface CallQuantization {
  readonly recipe: Recipe;
  /** Returns the quantizer of a role. `whole` says that the tensor is a whole one, gathered from the rows of all ranks. */
  quantizer(role: ForwardRole, whole?: boolean): Quantizer;
  /** Returns the quantization of the backward pass of this call. */
  forBackward(): BackwardQuantization;
  /** Returns the quantizer of the weight, or of this rank's rows of it. */
  weightQuantizer(sharding: Sharding | undefined): Quantizer;
  /** Replaces the amax that was recorded for this rank's rows by the amax of the whole weight. */
  shareWeightAmax(sharding: Sharding): void;
  /** The cached weight that the first run used, if this call repeats that run and the run used the cache. */
  readonly weight?: QuantizedTensor | undefined;
}

/** How the rows of a weight are quantized before the call. */
export interface EarlyQuantization {
  readonly inForce: RecipeInForce;
  readonly quantizer: Quantizer;
  /** Under delayed scaling: which of its scales were taken, and the amax that the call will record. */
  readonly delayed: { readonly version: number; readonly amax: Tensor<"f32"> } | undefined;
  /** Of codes that are kept for the backward pass. */
  readonly columnwise: boolean;
}

export class RecipeInForce implements CallQuantization {
  readonly #random: RandomState;
  readonly #parallel: TensorParallel | undefined;
  readonly #quantizers: ReadonlyMap<Role, Quantizer>;
  /** The quantizers of tensors whose rows are gathered before they are quantized. Each is created at its first use. */
  readonly #wholes = new Map<Role, Quantizer>();
  /** The quantizer of this rank's rows of a sharded weight. It is created at its first use. */
  #ofRows: Quantizer | undefined;
  /** The scales and amax histories of each pass. Undefined unless the recipe is delayed scaling. */
  readonly #states: Readonly<Record<Pass, DelayedState>> | undefined;

  constructor(
    readonly recipe: Recipe,
    {
      backend,
      random,
      parallel,
    }: {
      readonly backend: Backend;
      readonly random: RandomState;
      readonly parallel?: TensorParallel | undefined;
    },
    from?: QuantizationSnapshot,
  ) {
    this.#random = random;
    this.#parallel = parallel;
    if (isDelayed(recipe)) {
      const state = (pass: Pass): DelayedState => new DelayedState(backend, recipe, pass, from?.[pass]);
      this.#states = orDispose((made) => {
        const forward = state("forward");
        made.push(forward);
        return { forward, backward: state("backward") };
      });
    }
    this.#quantizers = new Map([...ROLES.forward, ...ROLES.backward].map((role) => [role, this.#make(role)]));
  }

  /** The state of the forward tensors. Undefined unless the recipe is delayed scaling. */
  get forward(): DelayedState | undefined {
    return this.#states?.forward;
  }

  weightQuantizer(sharding: Sharding | undefined): Quantizer {
    if (!sharding) return this.quantizer("weight");
    const slot = slotOf("weight");
    const state = this.#states?.forward;
    this.#ofRows ??= this.#ofShard(sharding, { scale: state?.scales[slot], amax: state?.amaxes[slot] });
    return this.#ofRows;
  }

  /** As `weightQuantizer`, with the scale among `scales` [3], without recording an amax. */
  rowsQuantizerBy(scales: Tensor<"f32">, sharding: Sharding): Quantizer {
    return this.#ofShard(sharding, { scale: scales.view(slotOf("weight"), [1]), amax: undefined });
  }

  /**
   * How the rows of a weight can be quantized before a call, without recording anything until then. The caller disposes of the
   * amax.
   */
  early(sharding: Sharding, columnwise: boolean): EarlyQuantization {
    const state = this.#states?.forward;
    if (!state)
      return { inForce: this, quantizer: this.weightQuantizer(sharding), delayed: undefined, columnwise };
    const amax = persistent(zeros(state.scale.backend, "f32", [1]));
    const quantizer = this.#ofShard(sharding, { scale: state.scales[slotOf("weight")], amax });
    return { inForce: this, quantizer, delayed: { version: state.version, amax }, columnwise };
  }

  /** Whether the rows would be quantized now as they were. */
  isSame({ inForce, delayed }: EarlyQuantization): boolean {
    return inForce === this && delayed?.version === this.#states?.forward.version;
  }

  /** Records the amax of a weight that was quantized early. */
  recordEarly({ delayed }: EarlyQuantization): void {
    const record = this.#states?.forward.amaxes[slotOf("weight")];
    if (!delayed || !record) return;
    const { amax } = delayed;
    const both = zeros(amax.backend, "f32", [2]).paste(record, 0).paste(amax, 1);
    execute(amax.backend, "amax", { x: both, out: record });
    both.dispose();
    amax.dispose();
  }

  #ofShard({ group }: Sharding, scales: Pick<QuantizerState, "scale" | "amax">): Quantizer {
    const shard = shardOf(group, this.#parallel?.shard("weight"));
    return quantizerFor(this.recipe, "weight", { random: this.#random, ...scales, shard });
  }

  shareWeightAmax({ group }: Sharding): void {
    const amax = this.#states?.forward.amaxes[slotOf("weight")];
    if (amax && group.size > 1) group.reduceMax([amax]);
  }

  #make(role: Role, whole = false): Quantizer {
    const slot = slotOf(role);
    const state = this.#states?.[passOf(role)];
    return this.#with(role, whole, { scale: state?.scales[slot], amax: state?.amaxes[slot] });
  }

  #with(role: Role, whole: boolean, scales: Pick<QuantizerState, "scale" | "amax">): Quantizer {
    const parallel = whole ? undefined : this.#parallel;
    const gathered = (role === "input" || role === "gradOutput") && parallel?.gathers(role) !== undefined;
    const shared = parallel ? { shard: parallel.shard(role), gathered } : {};
    return quantizerFor(this.recipe, role, { random: this.#random, ...scales, ...shared });
  }

  quantizer(role: Role, whole = false): Quantizer {
    if (!whole) return this.#quantizers.get(role) as Quantizer;
    const made = this.#wholes.get(role) ?? this.#make(role, true);
    this.#wholes.set(role, made);
    return made;
  }

  /**
   * Returns a quantizer of a forward tensor that uses `scales` [3] and records no amax, or undefined unless the recipe is
   * delayed scaling.
   */
  quantizerBy(scales: Tensor<"f32">, role: ForwardRole, whole = false): Quantizer | undefined {
    if (!isDelayed(this.recipe)) return undefined;
    const scale = scales.view(slotOf(role), [1]);
    return this.#with(role, whole, { scale, amax: undefined });
  }

  forBackward(): BackwardQuantization {
    const state = this.#states?.backward;
    if (!state) return { quantizer: (role, whole) => this.quantizer(role, whole), enter() {}, saved: [] };
    // new handles, because this state may be replaced and disposed of before the backward pass
    const held = (of: readonly Tensor<"f32">[]): readonly Tensor<"f32">[] =>
      of.map((each) => each.reshape(each.shape));
    const [scales, amaxes] = [held(state.scales), held(state.amaxes)];
    return {
      quantizer: (role, whole = false) => {
        if (!state.replaced) return this.quantizer(role, whole);
        const slot = slotOf(role);
        return this.#with(role, whole, { scale: scales[slot], amax: amaxes[slot] });
      },
      enter: (pass, group) => pass.updates.add(state, group),
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
}

/** Returns the index of a role's scale among the scales of its pass. */
function slotOf(role: Role): number {
  return (ROLES[passOf(role)] as readonly Role[]).indexOf(role);
}
