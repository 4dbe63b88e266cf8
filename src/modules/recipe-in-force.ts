/** The recipe that is in force for one layer: a quantizer for each tensor role and, under delayed scaling, the scales. */
import type { Backend } from "../backends/backend.js";
import type { Quantizer, RandomState } from "../quantizers/quantizer.js";
import { isDelayed } from "../recipes/is-delayed.js";
import { quantizerFor } from "../recipes/quantizer-for.js";
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
import type { AmaxReductionGroup } from "../tape/scale-updates.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import { DelayedState } from "./delayed-state.js";
import type { QuantizationSnapshot } from "./quantization-state.js";

/**
 * The quantization of the backward pass that belongs to one forward pass. It stays the same if the layer changes its recipe
 * between the two.
 */
export interface BackwardQuantization {
  quantizer(role: BackwardRole): Quantizer;
  /**
   * Registers the pending scale updates. Call it before gradients are quantized. `group` is the amax reduction group of the
   * forward pass.
   */
  enter(pass: BackwardPass, group: AmaxReductionGroup | undefined): void;
  /** Tensors to dispose of after the backward pass. */
  readonly saved: readonly Tensor[];
}

/** The quantization of one call of a layer. */
export interface CallQuantization {
  readonly recipe: Recipe;
  quantizer(role: ForwardRole): Quantizer;
  /** Returns the quantization of the backward pass of this call. */
  forBackward(): BackwardQuantization;
  /** The cached weight that the first run used, if this call repeats that run and the run used the cache. */
  readonly weight?: QuantizedTensor | undefined;
}

export class RecipeInForce implements CallQuantization {
  readonly #random: RandomState;
  readonly #quantizers: ReadonlyMap<Role, Quantizer>;
  /** The scales and amax histories of each pass. Undefined unless the recipe is delayed scaling. */
  readonly #states: Readonly<Record<Pass, DelayedState>> | undefined;

  constructor(
    readonly recipe: Recipe,
    { backend, random }: { readonly backend: Backend; readonly random: RandomState },
    from?: QuantizationSnapshot,
  ) {
    this.#random = random;
    if (isDelayed(recipe)) {
      const state = (pass: Pass): DelayedState => new DelayedState(backend, recipe, pass, from?.[pass]);
      this.#states = { forward: state("forward"), backward: state("backward") };
    }
    this.#quantizers = new Map([...ROLES.forward, ...ROLES.backward].map((role) => [role, this.#make(role)]));
  }

  /** The state of the forward tensors. Undefined unless the recipe is delayed scaling. */
  get forward(): DelayedState | undefined {
    return this.#states?.forward;
  }

  #make(role: Role): Quantizer {
    const slot = slotOf(role);
    const state = this.#states?.[passOf(role)];
    const [scale, amax] = [state?.scales[slot], state?.amaxes[slot]];
    return quantizerFor(this.recipe, role, { random: this.#random, scale, amax });
  }

  quantizer(role: Role): Quantizer {
    return this.#quantizers.get(role) as Quantizer;
  }

  /**
   * Returns a quantizer of a forward tensor that uses `scales` [3] and records no amax, or undefined unless the recipe is
   * delayed scaling.
   */
  quantizerBy(scales: Tensor<"f32">, role: ForwardRole): Quantizer | undefined {
    const { recipe } = this;
    if (!isDelayed(recipe)) return undefined;
    const scale = scales.view(slotOf(role), [1]);
    return quantizerFor(recipe, role, { random: this.#random, scale });
  }

  forBackward(): BackwardQuantization {
    const state = this.#states?.backward;
    if (!state) return { quantizer: (role) => this.quantizer(role), enter() {}, saved: [] };
    // new handles, because this state may be replaced and disposed of before the backward pass
    const held = (of: readonly Tensor<"f32">[]): readonly Tensor<"f32">[] =>
      of.map((each) => each.reshape(each.shape));
    const [scales, amaxes] = [held(state.scales), held(state.amaxes)];
    return {
      quantizer: (role) => {
        if (!state.replaced) return this.quantizer(role);
        const slot = slotOf(role);
        const [scale, amax] = [scales[slot], amaxes[slot]];
        return quantizerFor(this.recipe, role, { random: this.#random, scale, amax });
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
