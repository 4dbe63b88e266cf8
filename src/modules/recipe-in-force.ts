/** A recipe as one layer has taken it up: a quantizer for each role and, under delayed scaling, their scales. */
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
import type { AmaxReductionGroup } from "../tape/scale-updates.js";
import type { BackwardPass } from "../tape/variable.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import { DelayedState } from "./delayed-state.js";
import type { QuantizationSnapshot } from "./quantization-state.js";

/** What the backward pass of one forward pass quantizes with, whatever recipe its layer takes up in between. */
export interface BackwardQuantization {
  quantizer(role: BackwardRole): Quantizer;
  /** Gradients are about to be quantized; `group` is that of the forward pass. */
  enter(pass: BackwardPass, group: AmaxReductionGroup | undefined): void;
  /** To be disposed of after that pass. */
  readonly saved: readonly Tensor[];
}

/** What one call of a layer quantizes with. */
export interface CallQuantization {
  readonly recipe: Recipe;
  quantizer(role: ForwardRole): Quantizer;
  /** For its backward pass. */
  forBackward(): BackwardQuantization;
  /** The weight from the cache, where that call repeats one that took it. */
  readonly weight?: QuantizedTensor | undefined;
}

export class RecipeInForce implements CallQuantization {
  readonly #random: RandomState;
  readonly #quantizers: ReadonlyMap<Role, Quantizer>;
  /** Of delayed scaling. */
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

  /** What follows from the amaxes of forward passes; undefined but for delayed scaling. */
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

  /** A quantizer of forward tensors by other scales, [3], that records nothing. Undefined but for delayed scaling. */
  quantizerBy(scales: Tensor<"f32">, role: ForwardRole): Quantizer | undefined {
    const { recipe } = this;
    if (!isDelayed(recipe)) return undefined;
    const scale = scales.view(slotOf(role), [1]);
    return quantizerFor(recipe, role, { random: this.#random, scale });
  }

  forBackward(): BackwardQuantization {
    const state = this.#states?.backward;
    if (!state) return { quantizer: (role) => this.quantizer(role), enter() {}, saved: [] };
    // handles of their own, for this state may be replaced and its memory given back
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

/** Where a role's scale stands among those of its pass. */
function slotOf(role: Role): number {
  return (ROLES[passOf(role)] as readonly Role[]).indexOf(role);
}
