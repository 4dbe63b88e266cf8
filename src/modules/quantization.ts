/** What one linear layer quantizes with: its quantizers under the current recipe, their state, and its cached weight. */
import type { Region } from "../autocast/autocast.js";
import type { Backend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import type { Quantizer, RandomState } from "../quantizers/quantizer.js";
import { CustomRecipe } from "../recipes/custom.js";
import { DelayedScaling } from "../recipes/per-tensor.js";
import { quantizerFor } from "../recipes/quantizer-for.js";
import { type Recipe, StandardRecipe } from "../recipes/recipe.js";
import { requireRecipeSupport } from "../recipes/support.js";
import { BACKWARD_ROLES, FORWARD_ROLES, type Role } from "../recipes/table.js";
import type { DelayedScales } from "../tape/scale-updates.js";
import type { QuantizedTensor, QuantizeSpec } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import { type DelayedSnapshot, DelayedState } from "./delayed-state.js";
import { persistent } from "./parameter.js";
import { currentPhase } from "./recompute-phase.js";

type Quantizers = ReadonlyMap<Role, Quantizer>;

interface DelayedStates {
  readonly forward: DelayedState;
  readonly backward: DelayedState;
}

/** Delayed scaling's state in a checkpoint. */
export interface QuantizationSnapshot {
  readonly forward: DelayedSnapshot;
  readonly backward: DelayedSnapshot;
}

/** How a cached weight is used in one forward pass. */
export interface WeightUse {
  /** Absent: quantized anew; true: quantized and cached; false: taken from the cache. */
  readonly isFirstMicrobatch?: boolean | undefined;
  /** The cached weight is quantized again unless this f32 [1] holds exactly 1, which the device reads. */
  readonly skipFp8WeightUpdate?: Tensor<"f32"> | undefined;
  readonly columnwise: boolean;
}

/** How many recipes ago a forward pass may have been whose backward pass is still to come. */
const MOST_RETIRED = 4;

/** TransformerEngine's fp8_meta of one product and its gradients. */
export class LinearQuantization {
  #recipe: Recipe | undefined;
  #quantizers: Quantizers = new Map();
  #delayed: DelayedStates | undefined;
  /** What `restore` was given, until it is in force. */
  #restored: { readonly snapshot: QuantizationSnapshot | undefined } | undefined;
  #cachedWeight: QuantizedTensor | undefined;
  readonly #retired: DelayedStates[] = [];

  constructor(
    private readonly backend: Backend,
    private readonly random: RandomState,
  ) {}

  /** Takes up the region's recipe. What the recipe before has left behind is kept where it still means something. */
  enter({ recipe, updates, group }: Region): void {
    if (recipe !== this.#recipe && recipe.key !== this.#recipe?.key) this.#change(recipe);
    if (this.#delayed && currentPhase()?.pass !== "again") updates?.add(this.#delayed.forward, group);
  }

  /** Delayed scaling's scales of gradients, to be updated after a backward pass that uses them. */
  get gradScales(): DelayedScales | undefined {
    return this.#delayed?.backward;
  }

  #change(recipe: Recipe): void {
    requireRecipeSupport(recipe, this.backend);
    const before = this.#recipe;
    if (before && before.kind !== recipe.kind) {
      console.warn(
        `lockstep: a layer's recipe changes from ${before.constructor.name} to ${recipe.constructor.name}; its cached weight is dropped`,
      );
    }
    this.#dropWeight();
    const kept = this.snapshotSync();
    this.#restored = undefined;
    this.#retire();
    this.#delayed = recipe instanceof DelayedScaling ? this.#delayedStates(recipe, kept) : undefined;
    this.#quantizers = this.#make(recipe);
    this.#recipe = recipe;
  }

  /** Backward passes may still want the scales of the recipes before. */
  #retire(): void {
    if (this.#delayed) this.#retired.push(this.#delayed);
    while (this.#retired.length > MOST_RETIRED) disposeStates(this.#retired.shift());
    this.#delayed = undefined;
  }

  #delayedStates(recipe: DelayedScaling, from: QuantizationSnapshot | undefined): DelayedStates {
    const { backend } = this;
    const [forward, backward] = [recipe.elementFormat("input"), recipe.elementFormat("gradOutput")];
    return {
      forward: new DelayedState(backend, recipe, forward, FORWARD_ROLES.length, from?.forward),
      backward: new DelayedState(backend, recipe, backward, BACKWARD_ROLES.length, from?.backward),
    };
  }

  #make(recipe: Recipe): Quantizers {
    const roles: readonly Role[] = [...FORWARD_ROLES, ...BACKWARD_ROLES];
    if (recipe instanceof StandardRecipe)
      return new Map(roles.map((role) => [role, quantizerFor(recipe, role, this.#stateOf(role))]));
    if (recipe instanceof CustomRecipe)
      return new Map(roles.map((role) => [role, recipe.quantizerFactory(role)]));
    throw new ArgumentError(`autocast: ${recipe.constructor.name} is no recipe that layers know`);
  }

  #stateOf(role: Role) {
    const slot = slotOf(role);
    const state = this.#delayed?.[slot.pass];
    return { random: this.random, scale: state?.scales[slot.index], amax: state?.amaxes[slot.index] };
  }

  /** The quantizer of a role. In a recomputed region both passes see the scales of the first. */
  quantizer(role: Role): Quantizer {
    const quantizer = this.#ownQuantizer(role);
    const recipe = this.#recipe;
    const phase = slotOf(role).pass === "forward" ? currentPhase() : undefined;
    if (!phase || !(recipe instanceof DelayedScaling)) return quantizer;
    const stash = phase.stash.get(this) ?? [];
    phase.stash.set(this, stash);
    if (phase.pass === "first") {
      const { scale } = this.#stateOf(role);
      if (scale) stash.push(persistent(scale.clone()));
      return quantizer;
    }
    const scale = stash.shift();
    return quantizerFor(recipe, role, { random: this.random, scale });
  }

  #ownQuantizer(role: Role): Quantizer {
    const quantizer = this.#quantizers.get(role);
    if (quantizer) return quantizer;
    throw new ArgumentError(`this layer has no quantizer for its ${role}; it is not in autocast`);
  }

  /** The quantized weight, to be disposed of by the caller unless it is cached. */
  weight(weight: Tensor, { isFirstMicrobatch, skipFp8WeightUpdate, columnwise }: WeightUse): QuantizedTensor {
    const cached = this.#cachedWeight;
    const usable = cached?.rowwise && (cached.columnwise || !columnwise) ? cached : undefined;
    const caches = isFirstMicrobatch !== undefined || skipFp8WeightUpdate !== undefined;
    if (usable && caches && isFirstMicrobatch !== true) {
      if (skipFp8WeightUpdate)
        this.quantizer("weight").updateQuantized(weight, usable, { noop: skipFp8WeightUpdate });
      return usable;
    }
    const quantizer = this.quantizer("weight").setUsage({ rowwise: true, columnwise });
    if (usable && caches) {
      quantizer.updateQuantized(weight, usable);
      return usable;
    }
    const made = quantizer.quantize(weight);
    if (!caches) return made;
    this.#dropWeight();
    this.#cachedWeight = persistent(made);
    return made;
  }

  isCached(weight: QuantizedTensor): boolean {
    return weight === this.#cachedWeight;
  }

  /**
   * A weight that is quantized itself comes to follow this layer's scale, and to record its amaxes here. Throws
   * `ArgumentError` unless it is quantized as the recipe says.
   */
  attach(weight: QuantizedTensor): void {
    const quantizer = this.#ownQuantizer("weight");
    const wanted = quantizer.spec;
    const differs = (Object.keys(wanted) as (keyof QuantizeSpec)[]).find(
      (key) => weight.spec[key] !== wanted[key],
    );
    if (!differs) {
      weight.updateQuantizer(quantizer);
      return;
    }
    throw new ArgumentError(
      `this layer's weight was quantized with ${differs} ${weight.spec[differs]} and ${this.#recipe?.constructor.name} takes ${wanted[differs]}; give quantizedModelInit and autocast the same recipe`,
    );
  }

  #dropWeight(): void {
    this.#cachedWeight?.dispose();
    this.#cachedWeight = undefined;
  }

  /** The state of delayed scaling, if there is any; the one restored where that is not in force yet. */
  snapshotSync(): QuantizationSnapshot | undefined {
    if (this.#restored) return this.#restored.snapshot;
    if (!this.#delayed) return undefined;
    const { forward, backward } = this.#delayed;
    return { forward: forward.snapshotSync(), backward: backward.snapshotSync() };
  }

  /**
   * Puts a state back, or none; it is in force from the next forward pass under delayed scaling on, unless that is under
   * another recipe.
   */
  restore(snapshot: QuantizationSnapshot | undefined): void {
    this.#restored = { snapshot };
    this.#recipe = undefined;
    this.#dropWeight();
  }

  dispose(): void {
    this.#dropWeight();
    this.#retire();
    for (const states of this.#retired.splice(0)) disposeStates(states);
    this.#recipe = undefined;
  }
}

function disposeStates(states: DelayedStates | undefined): void {
  states?.forward.dispose();
  states?.backward.dispose();
}

function slotOf(role: Role): { readonly pass: "forward" | "backward"; readonly index: number } {
  const forward = (FORWARD_ROLES as readonly Role[]).indexOf(role);
  if (forward >= 0) return { pass: "forward", index: forward };
  return { pass: "backward", index: (BACKWARD_ROLES as readonly Role[]).indexOf(role) };
}
