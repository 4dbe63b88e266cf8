/** The quantization of one linear layer: its recipe, the state of its scales, and its quantized weight. */
import { beginModule, type Region } from "../autocast.js";
import type { Backend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { RandomState } from "../quantizers/random-state.js";
import type { Recipe } from "../recipes/recipe.js";
import { type LayerPosition, type RoleCopies, UNNAMED } from "../recipes/role.js";
import { requireRecipeSupport } from "../recipes/support.js";
import type { ForwardRole } from "../recipes/table.js";
import { wideOf } from "../tape/value.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import type { LayerInspection } from "./inspection/layer-inspection.js";
import { type HasLayerRecipe, LAYER_INSPECTION, LAYER_RECIPE } from "./layer-region.js";
import { canQuantizeRows, PendingQuantizedWeight, rowsQuantizer } from "./linear/pending-weight.js";
import { checkQuantizers, type FitCheck, requireSameSpec } from "./linear/quantizer-checks.js";
import {
  isCached,
  quantizedWeight,
  WeightCache,
  type WeightRequest,
  type WeightUse,
} from "./linear/weight-cache.js";
import type { Parameter } from "./parameter.js";
import { checkSnapshot, type QuantizationSnapshot, type QuantizationState } from "./quantization-state.js";
import { type BackwardQuantization, type CallQuantization, RecipeState } from "./recipe-state.js";
import { differs, type ForwardPass, RecomputeCall, requirePass } from "./recompute-call.js";
import { appendCall, currentPhase, type RecomputePhase, takeNextCall } from "./recompute-phase.js";
import { amaxGroup, type TensorParallel } from "./tensor-parallel/tensor-parallel.js";

/** The state of a layer between forward passes. */
type LayerState =
  /** No forward pass has quantized yet. */
  | { readonly kind: "initial" }
  /** The state of the last forward pass. */
  | { readonly kind: "active"; readonly recipeState: RecipeState }
  /** A checkpoint was loaded. The next forward pass creates a new state from `snapshot` and frees the old one. */
  | {
      readonly kind: "restored";
      readonly snapshot: QuantizationSnapshot | undefined;
      readonly recipeState: RecipeState | undefined;
    };

/** The quantization of one linear product and its gradients. It corresponds to TransformerEngine's `fp8_meta`. */
export class LinearQuantization implements QuantizationState, HasLayerRecipe {
  #state: LayerState = { kind: "initial" };
  /** The state that `prepare` created, until `beginForward` uses it or `release` frees it. */
  #preparedState: RecipeState | undefined;
  #pass: ForwardPass | undefined;
  readonly #cache = new WeightCache();
  /** The columnwise copy of the cached weight, if it has a quantizer of its own. */
  readonly #columnwiseCache = new WeightCache();
  /** The recipe of this layer in place of the region's: null for high precision, undefined for the recipe of the region. */
  [LAYER_RECIPE]: Recipe | null | undefined;
  /** How an `Inspector` observes or changes this layer. */
  [LAYER_INSPECTION]: LayerInspection | undefined;
  readonly inspectionOf = (): LayerInspection | undefined => this[LAYER_INSPECTION];

  constructor(
    readonly backend: Backend,
    readonly random: RandomState,
    /** How the layer is divided among ranks. Undefined if it is not divided. */
    readonly parallel?: TensorParallel | undefined,
    /** Returns the position of the layer in its model, for the quantizers of custom recipes. */
    private readonly positionOf: () => LayerPosition = () => UNNAMED,
  ) {}

  /** The position of the layer in its model. */
  get position(): LayerPosition {
    return this.positionOf();
  }

  /**
   * Begins a forward pass of the layer in a region.
   *
   * If the recipe has changed, a new state is created; scales and histories are kept between delayed-scaling recipes. If the
   * weight is quantized, its quantizer then uses the layer's scale and amaxes. The second run of a recomputed region changes
   * none of this and repeats a call of the first run.
   *
   * Throws, before anything has changed, `UnsupportedError` for an unsupported recipe, `ArgumentError` for a weight quantized
   * with another spec or a second run that differs from the first, and whatever `check` throws for the recipe's quantizers.
   */
  beginForward(region: Region, weight: Parameter, check: FitCheck): void {
    const { recipe, updates, group } = region;
    const phase = currentPhase();
    if (phase?.pass === "again") {
      const quantization = this.#firstRunCall(phase, recipe);
      this.#pass = { run: "second", quantization };
      check((role) => quantization.copies(role), undefined);
      return;
    }
    const quantization = this.#stateFor(recipe, weight, check);
    beginModule(region);
    if (phase) {
      const recompute = new RecomputeCall(quantization);
      this.#pass = { run: "first", quantization, recompute };
      appendCall(phase.calls, this, recompute);
    } else this.#pass = { run: "only", quantization };
    if (quantization.forward) updates?.add(quantization.forward, amaxGroup(this.parallel?.group, group));
  }

  /**
   * Throws what `beginForward` would throw, before an earlier product of the same module has changed anything. It may create a
   * state, which `beginForward` uses. `release` frees that state if `beginForward` does not run.
   */
  prepare({ recipe }: Region, weight: Parameter, check: FitCheck): void {
    if (currentPhase()?.pass === "again") return;
    const activeState = this.#activeStateOf(recipe);
    if (activeState) checkQuantizers(activeState, check);
    else this.#preparedState = this.#createState(recipe, weight, check);
  }

  /** Frees the state that `prepare` created, if `beginForward` has not used it. */
  release(): void {
    this.#preparedState?.dispose();
    this.#preparedState = undefined;
  }

  /** Returns the quantizer of a role. Both runs of a recomputed region use the scales of the first run. */
  quantizer(role: ForwardRole, gathered = false): Quantizer {
    return this.#quantization.quantizer(role, gathered);
  }

  /** Returns how each copy of a role's tensor is quantized. */
  copies(role: ForwardRole, gathered = false): RoleCopies {
    return this.#quantization.copies(role, gathered);
  }

  /** Whether one quantizer makes both copies of each operand of the current forward pass. */
  get isPlain(): boolean {
    return this.#quantization.isPlain;
  }

  /** Returns the quantization of the backward pass that belongs to the current forward pass. */
  forBackward(): BackwardQuantization {
    return this.#quantization.forBackward();
  }

  /** Returns the quantizer of the weight, or of this rank's rows of it if it is sharded. */
  weightQuantizer(weight: Parameter): Quantizer {
    return this.#quantization.weightQuantizer(weight.sharding);
  }

  /**
   * Whether each rank may quantize its rows separately, so that codes are gathered. It may if that does not change the codes and
   * scales of the full weight. It changes them if a block crosses the boundary between ranks, for custom quantizers, which do not
   * take ranks into account, and for stochastic rounding, whose random bits depend on the order of calls.
   */
  quantizesRows(weight: Parameter): boolean {
    const { localValue, sharding } = weight;
    if (localValue instanceof QuantizedTensor) return true;
    const { recipe } = this.#quantization;
    const { rowwise } = this.copies("weight");
    return sharding !== undefined && rowwise !== undefined && canQuantizeRows(recipe, rowwise.spec, sharding);
  }

  /**
   * Whether the weight may be quantized before the call that uses it. It may not if the call takes it from the cache or from the
   * first run, nor in a second run under delayed scaling, which uses the scale of the first run.
   */
  canPrefetchWeight(use: WeightUse): boolean {
    if (isCached(use)) return false;
    if (this.#pass?.run !== "second") return true;
    return this.#pass.quantization.weight === undefined && this.#recipeState?.forward === undefined;
  }

  /**
   * Starts to quantize and gather the rows of a sharded weight before the call that uses them. Returns undefined if that call may
   * quantize in another way.
   */
  startQuantizing(weight: Parameter, columnwise: boolean): PendingQuantizedWeight | undefined {
    const { localValue, sharding } = weight;
    if (this.#state.kind !== "active" || !sharding || localValue instanceof QuantizedTensor) return undefined;
    const { recipeState } = this.#state;
    // the recipe may have changed since the call that registered the weight for prefetch
    const { rowwise: quantizer } = recipeState.copies("weight");
    if (!quantizer || !canQuantizeRows(recipeState.recipe, quantizer.spec, sharding)) return undefined;
    const rows = recipeState.rowsQuantization(sharding, columnwise);
    return new PendingQuantizedWeight(this, localValue, rows, sharding);
  }

  /** Whether the current call would quantize the weight as `pending` did. */
  matchesCall(
    { quantization, rows }: PendingQuantizedWeight,
    weight: Parameter,
    columnwise: boolean,
  ): boolean {
    const pass = this.#pass;
    if (quantization !== this || rows.columnwise !== columnwise) return false;
    if (!pass || !this.#recipeState?.isUnchanged(rows)) return false;
    return pass.run !== "second" || pass.quantization.weightQuantizer(weight.sharding) === rows.quantizer;
  }

  /** Records the amax of a weight that was quantized before the call, as the call would have recorded it. */
  recordAmax({ rows }: PendingQuantizedWeight): void {
    this.#recipeState?.recordAmax(rows);
  }

  /**
   * Returns the columnwise copy of the weight, if `quantizer` makes only this copy. `source` returns the values to quantize. The
   * caller disposes of it.
   */
  columnwiseWeight(use: WeightUse, quantizer: Quantizer, source: () => Tensor): QuantizedTensor {
    const pass = requirePass(this.#pass);
    if (pass.run === "second" && pass.quantization.columnwiseWeight)
      return pass.quantization.columnwiseWeight.share();
    const quantize = <R>(run: (quantizer: Quantizer, values: Tensor) => R): R => run(quantizer, source());
    const request = { ...use, columnwise: true, onlyColumnwise: true };
    if (!isCached(use)) return quantizedWeight(request, quantize);
    if (pass.run === "second") throw differs("takes a weight from the cache");
    const cached = this.#columnwiseCache.update(request, quantize);
    if (pass.run === "first") pass.recompute.keepColumnwiseWeight(cached);
    return cached.share();
  }

  /** Returns the quantized weight, or this rank's rows of it with `gathersCodes`. The caller disposes of it. */
  weight(parameter: Parameter, request: WeightRequest): QuantizedTensor {
    const pass = requirePass(this.#pass);
    if (pass.run === "second" && pass.quantization.weight) return pass.quantization.weight.share();
    const quantize = <R>(run: (quantizer: Quantizer, values: Tensor) => R): R =>
      this.#quantizeWeight(parameter, request, run);
    if (!isCached(request)) return quantizedWeight(request, quantize);
    if (pass.run === "second") throw differs("takes a weight from the cache");
    const cached = this.#cache.update(request, quantize);
    if (pass.run === "first") pass.recompute.keepWeight(cached);
    return cached.share();
  }

  /** Returns the current state, or a restored state that has not been applied yet. */
  snapshotSync(): QuantizationSnapshot | undefined {
    return this.#state.kind === "restored" ? this.#state.snapshot : this.#recipeState?.snapshotSync();
  }

  restore(snapshot: QuantizationSnapshot | undefined): void {
    const checkedSnapshot =
      snapshot === undefined ? undefined : checkSnapshot("restore", snapshot, "the snapshot");
    this.#state = { kind: "restored", snapshot: checkedSnapshot, recipeState: this.#recipeState };
    this.#clearCache();
  }

  dispose(): void {
    this.release();
    this.#clearCache();
    this.#recipeState?.dispose();
    this.#state =
      this.#state.kind === "restored" ? { ...this.#state, recipeState: undefined } : { kind: "initial" };
    this.#pass = undefined;
  }

  #clearCache(): void {
    this.#cache.clear();
    this.#columnwiseCache.clear();
  }

  get #quantization(): CallQuantization {
    return requirePass(this.#pass).quantization;
  }

  get #recipeState(): RecipeState | undefined {
    return this.#state.kind === "initial" ? undefined : this.#state.recipeState;
  }

  /** Returns the active state if it belongs to `recipe`. */
  #activeStateOf(recipe: Recipe): RecipeState | undefined {
    if (this.#state.kind !== "active") return undefined;
    const { recipeState } = this.#state;
    return recipe === recipeState.recipe || recipe.key === recipeState.recipe.key ? recipeState : undefined;
  }

  /** Returns the state for a forward pass under `recipe`, and replaces the current state if it belongs to another recipe. */
  #stateFor(recipe: Recipe, weight: Parameter, check: FitCheck): RecipeState {
    const active = this.#activeStateOf(recipe);
    if (!active) return this.#changeState(recipe, weight, check);
    checkQuantizers(active, check);
    return active;
  }

  #changeState(recipe: Recipe, weight: Parameter, check: FitCheck): RecipeState {
    const next = this.#preparedState ?? this.#createState(recipe, weight, check);
    this.#preparedState = undefined;
    const { localValue, sharding } = weight;
    if (localValue instanceof QuantizedTensor)
      localValue.updateQuantizer(
        sharding ? rowsQuantizer(next, sharding) : (next.copies("weight").rowwise as Quantizer),
      );
    const previous = this.#state.kind === "active" ? this.#state.recipeState.recipe : undefined;
    if (previous && previous.kind !== recipe.kind) {
      console.warn(
        `lockstep: a layer's recipe changes from ${previous.constructor.name} to ${recipe.constructor.name}; its cached weight is dropped, and scales and histories begin anew`,
      );
    }
    this.#clearCache();
    this.#recipeState?.dispose();
    this.#state = { kind: "active", recipeState: next };
    return next;
  }

  /** Creates the state of this product under `recipe`. If it throws, nothing has changed. */
  #createState(recipe: Recipe, { localValue }: Parameter, check: FitCheck): RecipeState {
    requireRecipeSupport(recipe, this.backend);
    const next = new RecipeState(recipe, this, this.snapshotSync());
    try {
      checkQuantizers(next, check);
      if (localValue instanceof QuantizedTensor) requireSameSpec(localValue.spec, next);
      return next;
    } catch (error) {
      next.dispose();
      throw error;
    }
  }

  /** Returns the call of the first run that this call of the second run repeats. */
  #firstRunCall(phase: RecomputePhase, recipe: Recipe): RecomputeCall {
    const call = takeNextCall(phase, this);
    if (call instanceof RecomputeCall && call.recipe.key === recipe.key) return call;
    throw differs(call ? "calls a layer under another recipe" : "calls a layer more often");
  }

  /** Calls `run` for the weight, or with `gathersCodes` for this rank's rows, and then reduces the recorded amax over ranks. */
  #quantizeWeight<R>(
    { localValue, sharding }: Parameter,
    { gathersCodes = false }: WeightRequest,
    run: (quantizer: Quantizer, values: Tensor) => R,
  ): R {
    if (!sharding || !gathersCodes) {
      const values = sharding?.transientValue() ?? localValue;
      const { rowwise } = this.copies("weight");
      if (!rowwise) throw new ArgumentError("linear: the recipe keeps the weight in high precision");
      return run(rowwise, wideOf("linear: the weight", values));
    }
    const quantizer = this.#quantization.weightQuantizer(sharding);
    const result = run(quantizer, wideOf("linear: the weight", localValue));
    this.#quantization.reduceWeightAmax(sharding);
    return result;
  }
}
