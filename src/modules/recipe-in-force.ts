/** One layer's instance of a recipe: a quantizer for each role and, under delayed scaling, their scales. */
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

/** The quantization of the backward pass of one forward pass. It does not change when the layer switches recipes in between. */
export interface BackwardQuantization {
  quantizer(role: BackwardRole): Quantizer;
  /** Call before gradients are quantized; `group` is that of the forward pass. */
  enter(pass: BackwardPass, group: AmaxReductionGroup | undefined): void;
  /** Tensors to dispose of after that pass. */
  readonly saved: readonly Tensor[];
}

/** The quantization of one call of a layer. */
export interface CallQuantization {
  readonly recipe: Recipe;
  quantizer(role: ForwardRole): Quantizer;
  /** The quantization of its backward pass. */
  forBackward(): BackwardQuantization;
  /** The cached weight of the call that this one repeats, if that used the cache. */
  readonly weight?: QuantizedTensor | undefined;
}

export class RecipeInForce implements CallQuantization {
  readonly #random: RandomState;
  readonly #quantizers: ReadonlyMap<Role, Quantizer>;
  /** Delayed scaling only. */
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

  /** The state of forward tensors; delayed scaling only. */
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

  /** A quantizer of forward tensors that uses the given scales, [3], and records no amaxes; delayed scaling only. */
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

/** The index of a role's scale among those of its pass. */
function slotOf(role: Role): number {
  return (ROLES[passOf(role)] as readonly Role[]).indexOf(role);
}
