/** The quantization of the tensors of attention under a recipe (numerics.md §10.9). */
import { beginModule, type Region } from "../../autocast.js";
import type { Backend } from "../../backends/backend.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { ShapeError } from "../../errors.js";
import { isTensorWide, tileSize, usesTensorAmax } from "../../formats/block.js";
import type { AttentionQuantization } from "../../functional/quantized-attention.js";
import { zeros } from "../../ops/create.js";
import { execute } from "../../ops/execute.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { RandomState } from "../../quantizers/random-state.js";
import type { AmaxReductionGroup } from "../../quantizers/shard.js";
import { isDelayed } from "../../recipes/is-delayed.js";
import { quantizerFor } from "../../recipes/quantizer-for.js";
import type { Recipe } from "../../recipes/recipe.js";
import { requireRecipeSupport } from "../../recipes/support.js";
import { ATTENTION_TENSORS, type AttentionTensor, type Pass } from "../../recipes/table.js";
import type { BackwardPass } from "../../tape/node.js";
import type { Value } from "../../tape/value.js";
import { COLUMNWISE, type QuantizedTensor, ROWWISE } from "../../tensor/quantized.js";
import { orDispose } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { DelayedState } from "../delayed-state.js";
import type { LayerInspection } from "../inspection/layer-inspection.js";
import { type HasLayerRecipe, LAYER_INSPECTION, LAYER_RECIPE, layerRegion } from "../layer-region.js";
import { persistent } from "../parameter.js";
import {
  type QuantizationSlots,
  type QuantizationSnapshot,
  type QuantizationState,
  snapshotCheck,
} from "../quantization-state.js";
import { differs } from "../recompute-call.js";
import { appendCall, currentPhase, type HeldCall, takeNextCall } from "../recompute-phase.js";
import { amaxGroup } from "../tensor-parallel/tensor-parallel.js";

const SLOTS: QuantizationSlots = {
  forward: ATTENTION_TENSORS.forward.length,
  backward: ATTENTION_TENSORS.backward.length,
};
const checkSnapshot = snapshotCheck(SLOTS);

/** The scale of each tensor of a pass, and the tensors that record amaxes. Both are empty but under delayed scaling. */
interface PassScales {
  readonly scales: readonly Tensor<"f32">[];
  readonly amaxes: readonly Tensor<"f32">[];
}

const NO_SCALES: PassScales = { scales: [], amaxes: [] };

/** The delayed scales of both passes. Undefined unless the recipe is delayed scaling. */
type DelayedStates = Readonly<Record<Pass, DelayedState>> | undefined;

/** The state under one recipe. */
interface AttentionState {
  readonly recipe: Recipe;
  readonly states: DelayedStates;
}

/** The recipe and the groups of ranks of one call. */
interface CallSettings extends AttentionState {
  readonly random: RandomState;
  /** The ranks that have other heads. */
  readonly group: ProcessGroup | undefined;
  readonly regionGroup: AmaxReductionGroup | undefined;
}

/** The quantization of one call of attention. */
export class AttentionCallQuantization implements AttentionQuantization {
  #backward: PassScales;

  constructor(
    private readonly settings: CallSettings,
    private readonly forward: PassScales,
    /** The scales of the first run of a recomputed region. Undefined in other runs. */
    heldBackward: PassScales | undefined,
  ) {
    this.#backward = heldBackward ?? NO_SCALES;
    this.isHeld = heldBackward !== undefined;
  }

  /** Whether the call repeats a call of the first run of a recomputed region, which owns the scales. */
  private readonly isHeld: boolean;

  quantize(
    name: AttentionTensor,
    values: readonly Tensor<WideDType>[],
  ): readonly QuantizedTensor[] | undefined {
    const { recipe, group } = this.settings;
    const isProbability = name === "s" || name === "dp";
    if (isProbability && !recipe.attention?.probabilities) return undefined;
    const quantizer = this.#quantizer(name);
    if (!usesTensorAmax(quantizer.spec)) return values.map((each, i) => quantizeInput(quantizer, each, i));
    const amax = jointAmax(values, group);
    return values.map((value) => quantizer.setUsage(ROWWISE).quantizeBy(value, [amax]));
  }

  forBackward(): readonly Tensor[] {
    const state = this.settings.states?.backward;
    if (!state || this.isHeld) return [];
    this.#backward = readHandles(state);
    return [...this.#backward.scales, ...this.#backward.amaxes];
  }

  beginBackward(pass: BackwardPass): void {
    const { states, group, regionGroup } = this.settings;
    if (states) pass.updates.add(states.backward, amaxGroup(group, regionGroup));
  }

  #quantizer(name: AttentionTensor): Quantizer {
    const { recipe, random } = this.settings;
    const isForward = (ATTENTION_TENSORS.forward as readonly AttentionTensor[]).includes(name);
    const pass = isForward ? "forward" : "backward";
    const slot = (ATTENTION_TENSORS[pass] as readonly AttentionTensor[]).indexOf(name);
    const { scales, amaxes } = isForward ? this.forward : this.#backward;
    const state = { random, scale: scales[slot], amax: amaxes[slot] };
    // settings as those of other tensors of the pass that are not weights
    return quantizerFor(recipe, isForward ? "output" : "gradInput", state);
  }
}

/**
 * Quantizes a tensor. With scales of blocks, the third one, the values or their gradient, has them along the positions, over
 * which the product sums.
 */
function quantizeInput(quantizer: Quantizer, x: Tensor<WideDType>, i: number): QuantizedTensor {
  const { tile } = quantizer.spec;
  if (isTensorWide(tile) || i !== 2) return quantizer.setUsage(ROWWISE).quantize(x);
  const [positions = 0] = x.shape.slice(-2);
  const [, length] = tileSize(tile);
  if (positions % length !== 0)
    throw new ShapeError(
      `attention: the values have ${positions} positions; under this recipe ${length} of them share a scale; pad them to a multiple`,
    );
  return quantizer.setUsage(COLUMNWISE).quantize(x);
}

/** The largest amax of some tensors, on all ranks of `group`. */
function jointAmax(values: readonly Tensor<WideDType>[], group: ProcessGroup | undefined): Tensor<"f32"> {
  const { backend } = values[0] as Tensor<WideDType>;
  const amaxes = zeros(backend, "f32", [values.length]);
  values.forEach((x, i) => {
    execute(backend, "amax", { x, out: amaxes.view(i, [1]) });
  });
  const out = new Tensor(backend, "f32", [1]);
  execute(backend, "amax", { x: amaxes, out });
  group?.reduceMax([out]);
  return out;
}

/** Returns new handles, because a state may be replaced and disposed of before the backward pass. */
function readHandles({ scales, amaxes }: DelayedState): PassScales {
  const handles = (views: readonly Tensor<"f32">[]) => views.map((view) => view.reshape(view.shape));
  return { scales: handles(scales), amaxes: handles(amaxes) };
}

/** A call of the first run of a recomputed region: the scales that it used. */
class HeldAttentionCall implements HeldCall {
  readonly #scale: Tensor<"f32"> | undefined;
  readonly backward: PassScales;

  constructor(readonly settings: CallSettings) {
    const { states } = settings;
    this.#scale = states && persistent(states.forward.scale.clone());
    this.backward = states ? readHandles(states.backward) : NO_SCALES;
    for (const each of [...this.backward.scales, ...this.backward.amaxes]) persistent(each);
  }

  /** The scales of forward tensors. Amaxes are not recorded again. */
  get forward(): PassScales {
    const scale = this.#scale;
    if (!scale) return NO_SCALES;
    return { scales: ATTENTION_TENSORS.forward.map((_, slot) => scale.view(slot, [1])), amaxes: [] };
  }

  get values(): readonly Value[] {
    const { scales, amaxes } = this.backward;
    return [...(this.#scale ? [this.#scale] : []), ...scales, ...amaxes];
  }
}

/** The quantization state of one attention. It corresponds to `fp8_meta` of TransformerEngine's attention. */
export class AttentionLayerQuantization implements QuantizationState, HasLayerRecipe {
  readonly slots = SLOTS;
  #state: AttentionState | undefined;
  /** The state of a checkpoint that no forward pass has used yet. */
  #restoredSnapshot: { readonly snapshot: QuantizationSnapshot | undefined } | undefined;
  /** The recipe of this attention in place of the region's: null for high precision, undefined for the recipe of the region. */
  [LAYER_RECIPE]: Recipe | null | undefined;
  /** How an `Inspector` changes this attention: it may disable the quantization. */
  [LAYER_INSPECTION]: LayerInspection | undefined;

  constructor(
    private readonly backend: Backend,
    private readonly random: RandomState,
    /** The ranks that have other heads. Undefined if the heads are not divided. */
    private readonly group: ProcessGroup | undefined,
  ) {}

  /** The recipe by which a call quantizes now. Undefined if attention computes in high precision. */
  get activeRecipe(): Recipe | undefined {
    const region = layerRegion(this);
    return region?.enabled && region.recipe.attention ? region.recipe : undefined;
  }

  /**
   * Begins a call. Returns undefined if attention computes in high precision. Throws `UnsupportedError` for a recipe that the
   * backend does not support, and `ArgumentError` in the second run of a recomputed region that differs from the first.
   */
  begin(): AttentionCallQuantization | undefined {
    const recipe = this.activeRecipe;
    const region = layerRegion(this) as Region;
    if (!recipe) return undefined;
    const phase = currentPhase();
    if (phase?.pass === "again") {
      const call = takeNextCall(phase, this);
      if (!(call instanceof HeldAttentionCall) || call.settings.recipe.key !== recipe.key)
        throw differs("calls attention more often, or under another recipe");
      return new AttentionCallQuantization(call.settings, call.forward, call.backward);
    }
    const state = this.#stateFor(recipe);
    beginModule(region);
    const { random, group } = this;
    const settings = { ...state, random, group, regionGroup: region.group };
    if (phase) appendCall(phase.calls, this, new HeldAttentionCall(settings));
    const forward = state.states?.forward;
    if (forward) region.updates?.add(forward, amaxGroup(group, region.group));
    return new AttentionCallQuantization(settings, forward ?? NO_SCALES, undefined);
  }

  snapshotSync(): QuantizationSnapshot | undefined {
    if (this.#restoredSnapshot) return this.#restoredSnapshot.snapshot;
    const states = this.#state?.states;
    return states && { forward: states.forward.snapshotSync(), backward: states.backward.snapshotSync() };
  }

  restore(snapshot: QuantizationSnapshot | undefined): void {
    const checkedSnapshot =
      snapshot === undefined ? undefined : checkSnapshot("restore", snapshot, "the snapshot");
    this.#restoredSnapshot = { snapshot: checkedSnapshot };
  }

  dispose(): void {
    this.#state?.states?.forward.dispose();
    this.#state?.states?.backward.dispose();
    this.#state = undefined;
  }

  /** Returns the state under `recipe`. Scales and histories are kept between recipes of delayed scaling. */
  #stateFor(recipe: Recipe): AttentionState {
    const current = this.#state;
    if (current && !this.#restoredSnapshot && current.recipe.key === recipe.key) return current;
    requireRecipeSupport(recipe, this.backend);
    const next = { recipe, states: this.#statesOf(recipe, this.snapshotSync()) };
    this.dispose();
    this.#restoredSnapshot = undefined;
    this.#state = next;
    return next;
  }

  #statesOf(recipe: Recipe, snapshot: QuantizationSnapshot | undefined): DelayedStates {
    if (!isDelayed(recipe)) return undefined;
    const createState = (pass: Pass): DelayedState =>
      new DelayedState(this.backend, recipe, { pass, slots: SLOTS[pass] }, snapshot?.[pass]);
    return orDispose((created) => {
      const forward = createState("forward");
      created.push(forward);
      return { forward, backward: createState("backward") };
    });
  }
}
