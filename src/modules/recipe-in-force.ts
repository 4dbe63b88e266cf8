/** A recipe as one layer has taken it up: a quantizer for each role and, under delayed scaling, their scales. */
import type { Backend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import type { Quantizer, RandomState } from "../quantizers/quantizer.js";
import { CustomRecipe } from "../recipes/custom.js";
import { DelayedScaling } from "../recipes/per-tensor.js";
import { quantizerFor } from "../recipes/quantizer-for.js";
import { type Recipe, StandardRecipe } from "../recipes/recipe.js";
import { BACKWARD_ROLES, FORWARD_ROLES, type Role } from "../recipes/table.js";
import type { AmaxReductionGroup } from "../tape/scale-updates.js";
import type { BackwardPass } from "../tape/variable.js";
import type { Tensor } from "../tensor/tensor.js";
import { type DelayedSnapshot, DelayedState } from "./delayed-state.js";

/** Delayed scaling's state in a checkpoint. */
export interface QuantizationSnapshot {
  readonly forward: DelayedSnapshot;
  readonly backward: DelayedSnapshot;
}

/** What the backward pass of one forward pass quantizes with, whatever recipe its layer takes up in between. */
export interface BackwardQuantization {
  quantizer(role: (typeof BACKWARD_ROLES)[number]): Quantizer;
  /** Gradients are about to be quantized; `group` is that of the forward pass. */
  enter(pass: BackwardPass, group: AmaxReductionGroup | undefined): void;
  /** To be disposed of after that pass. */
  readonly saved: readonly Tensor[];
}

export class RecipeInForce {
  readonly #random: RandomState;
  readonly #quantizers: ReadonlyMap<Role, Quantizer>;
  /** Of delayed scaling. */
  readonly forward: DelayedState | undefined;
  readonly backward: DelayedState | undefined;

  constructor(
    readonly recipe: Recipe,
    { backend, random }: { readonly backend: Backend; readonly random: RandomState },
    from?: QuantizationSnapshot,
  ) {
    this.#random = random;
    if (recipe instanceof DelayedScaling) {
      const state = (roles: readonly Role[], before?: DelayedSnapshot): DelayedState =>
        new DelayedState(backend, recipe, recipe.elementFormat(roles[0] as Role), roles.length, before);
      this.forward = state(FORWARD_ROLES, from?.forward);
      this.backward = state(BACKWARD_ROLES, from?.backward);
    }
    this.#quantizers = new Map([...FORWARD_ROLES, ...BACKWARD_ROLES].map((role) => [role, this.#make(role)]));
  }

  #make(role: Role): Quantizer {
    const { recipe } = this;
    if (recipe instanceof CustomRecipe) return recipe.quantizer(role);
    if (!(recipe instanceof StandardRecipe))
      throw new ArgumentError(`autocast: ${recipe.constructor.name} is no recipe that layers know`);
    const slots = (FORWARD_ROLES as readonly Role[]).includes(role) ? FORWARD_ROLES : BACKWARD_ROLES;
    const index = (slots as readonly Role[]).indexOf(role);
    const state = slots === FORWARD_ROLES ? this.forward : this.backward;
    const { scales, amaxes } = state ?? { scales: [], amaxes: [] };
    return quantizerFor(recipe, role, { random: this.#random, scale: scales[index], amax: amaxes[index] });
  }

  quantizer(role: Role): Quantizer {
    return this.#quantizers.get(role) as Quantizer;
  }

  /** A quantizer of forward tensors by other scales, [3], that records nothing. Undefined but for delayed scaling. */
  quantizerBy(scales: Tensor<"f32">, role: (typeof FORWARD_ROLES)[number]): Quantizer | undefined {
    const { recipe } = this;
    if (!(recipe instanceof DelayedScaling)) return undefined;
    const scale = scales.view(FORWARD_ROLES.indexOf(role), [1]);
    return quantizerFor(recipe, role, { random: this.#random, scale });
  }

  forBackward(): BackwardQuantization {
    const { recipe, backward: state } = this;
    if (!state || !(recipe instanceof DelayedScaling))
      return { quantizer: (role) => this.quantizer(role), enter() {}, saved: [] };
    // handles of their own, for this state may be replaced and its memory given back
    const held = (of: readonly Tensor<"f32">[]): readonly Tensor<"f32">[] =>
      of.map((each) => each.reshape(each.shape));
    const [scales, amaxes] = [held(state.scales), held(state.amaxes)];
    return {
      quantizer: (role) => {
        if (!state.replaced) return this.quantizer(role);
        const index = BACKWARD_ROLES.indexOf(role);
        const [scale, amax] = [scales[index], amaxes[index]];
        return quantizerFor(recipe, role, { random: this.#random, scale, amax });
      },
      enter: (pass, group) => pass.updates.add(state, group),
      saved: [...scales, ...amaxes],
    };
  }

  snapshotSync(): QuantizationSnapshot | undefined {
    const { forward, backward } = this;
    if (!forward || !backward) return undefined;
    return { forward: forward.snapshotSync(), backward: backward.snapshotSync() };
  }

  dispose(): void {
    this.forward?.dispose();
    this.backward?.dispose();
  }
}
