/** The quantization of one linear layer: its current recipe, its state and its cached quantized weight. */
import type { Region } from "../autocast.js";
import type { Backend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { RandomState } from "../quantizers/random-state.js";
import type { Recipe } from "../recipes/recipe.js";
import { requireRecipeSupport } from "../recipes/support.js";
import type { ForwardRole } from "../recipes/table.js";
import { wideOf } from "../tape/value.js";
import { QuantizedTensor, type QuantizerOps, type QuantizeSpec } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import { type Parameter, persistent } from "./parameter.js";
import { checkSnapshot, type QuantizationSnapshot, type QuantizationState } from "./quantization-state.js";
import { type BackwardQuantization, type CallQuantization, RecipeInForce } from "./recipe-in-force.js";
import { HeldCall } from "./recompute-call.js";
import { currentPhase, holdCall, type RecomputePhase, repeatedCall } from "./recompute-phase.js";
import { areWholeBlocksOf } from "./tensor-parallel/row-operand.js";
import { amaxGroup, type TensorParallel } from "./tensor-parallel/tensor-parallel.js";
import { EarlyWeight } from "./tensor-parallel/weight-ahead.js";

/** How one forward pass uses the cached quantized weight. The names are TransformerEngine's. */
export interface WeightUse {
  /**
   * If true, the weight is quantized and cached. If false, the cached one is used. If undefined, the weight is quantized for
   * this call only, unless `skipFp8WeightUpdate` is given.
   */
  readonly isFirstMicrobatch?: boolean | undefined;
  /** An f32 [1] tensor, read on the device. The cached weight is quantized again unless the element is exactly 1. */
  readonly skipFp8WeightUpdate?: Tensor<"f32"> | undefined;
}

/** Whether a call takes the quantized weight from the cache, which it may update first. */
export function isCached({ isFirstMicrobatch, skipFp8WeightUpdate }: WeightUse): boolean {
  return isFirstMicrobatch !== undefined || skipFp8WeightUpdate !== undefined;
}

/** The data of the quantized weight that one call needs. Rowwise data is always needed. */
export interface WeightRequest extends WeightUse {
  /** Whether dgrad will run. dgrad reads the columnwise data. */
  readonly columnwise: boolean;
  /** Whether this rank quantizes only its own rows, which are gathered later. Default false. */
  readonly gathers?: boolean | undefined;
}

/**
 * A check that throws if a call does not fit a recipe's quantizers. `gradient` is that of the result's gradient. It is undefined
 * in the second run of a recomputed region, because the first run was checked.
 */
export type Fits = (quantizer: (role: ForwardRole) => Quantizer, gradient: Quantizer | undefined) => void;

/** The quantization of one linear product and its gradients. It corresponds to TransformerEngine's `fp8_meta`. */
export class LinearQuantization implements QuantizationState {
  #inForce: RecipeInForce | undefined;
  /** The argument of the last `restore`, until a forward pass applies it. */
  #restored: { readonly snapshot: QuantizationSnapshot | undefined } | undefined;
  #cachedWeight: QuantizedTensor | undefined;
  /** The state that `prepare` created, until `enter` or `release` takes it. */
  #ready: RecipeInForce | undefined;
  /**
   * The quantization of the current forward pass. In the second run of a recomputed region it is the one held since the first
   * run.
   */
  #call: CallQuantization | undefined;
  /** The record of the current forward pass for its second run. Set only in the first run of a recomputed region. */
  #held: HeldCall | undefined;

  constructor(
    readonly backend: Backend,
    readonly random: RandomState,
    /** How the layer is divided among ranks. Undefined if it is not divided. */
    readonly parallel?: TensorParallel | undefined,
  ) {}

  /**
   * Begins a forward pass of the layer in a region.
   *
   * If the recipe has changed, the state is created anew, and scales and histories are carried over between delayed-scaling
   * recipes. If the weight is quantized, its quantizer is switched to this layer's scale and amaxes. The second run of a
   * recomputed region changes none of this and uses what the first run held.
   *
   * Throws, before anything has changed, `UnsupportedError` for an unsupported recipe, `ArgumentError` for a weight quantized
   * with another spec or a second run that differs from the first, and whatever `fits` throws. `fits` is called with the
   * recipe's quantizers.
   */
  enter({ recipe, updates, group }: Region, weight: Parameter, fits: Fits): void {
    const phase = currentPhase();
    this.#held = undefined;
    if (phase?.pass === "again") {
      this.#call = this.#repeated(phase, recipe);
      fits((role) => this.quantizer(role), undefined);
      return;
    }
    const before = this.#before();
    if (isOther(recipe, before)) this.#change(recipe, before, weight, fits);
    else checkBy(given(this.#inForce), fits);
    const current = given(this.#inForce);
    this.#call = current;
    if (phase) {
      this.#held = new HeldCall(current);
      holdCall(phase.calls, this, this.#held);
    }
    if (current.forward) updates?.add(current.forward, amaxGroup(this.parallel?.group, group));
  }

  /**
   * Throws what `enter` would throw, before an earlier product of the same module has changed anything. `enter` takes the state
   * that it prepares; `release` frees it if `enter` does not run.
   */
  prepare({ recipe }: Region, weight: Parameter, fits: Fits): void {
    if (currentPhase()?.pass === "again") return;
    if (isOther(recipe, this.#before())) this.#ready = this.#fitting(recipe, weight, fits);
    else checkBy(given(this.#inForce), fits);
  }

  /** Frees the state that `prepare` created, if `enter` has not taken it. */
  release(): void {
    this.#ready?.dispose();
    this.#ready = undefined;
  }

  #before(): Recipe | undefined {
    return this.#restored ? undefined : this.#inForce?.recipe;
  }

  #repeated(phase: RecomputePhase, recipe: Recipe): HeldCall {
    const held = repeatedCall(phase, this);
    if (held?.recipe.key === recipe.key) return held;
    throw differs(held ? "calls a layer under another recipe" : "calls a layer more often");
  }

  #change(recipe: Recipe, before: Recipe | undefined, weight: Parameter, fits: Fits): void {
    const next = this.#ready ?? this.#fitting(recipe, weight, fits);
    this.#ready = undefined;
    const { own, sharding } = weight;
    if (own instanceof QuantizedTensor)
      own.updateQuantizer(
        sharding
          ? sharing(next.weightQuantizer(sharding), () => next.shareWeightAmax(sharding))
          : next.quantizer("weight"),
      );
    if (before && before.kind !== recipe.kind) {
      console.warn(
        `lockstep: a layer's recipe changes from ${before.constructor.name} to ${recipe.constructor.name}; its cached weight is dropped, and scales and histories begin anew`,
      );
    }
    this.#dropWeight();
    this.#inForce?.dispose();
    this.#inForce = next;
    this.#restored = undefined;
  }

  /** Creates the state of this product under `recipe`. If it throws, nothing has changed. */
  #fitting(recipe: Recipe, { own }: Parameter, fits: Fits): RecipeInForce {
    requireRecipeSupport(recipe, this.backend);
    const next = new RecipeInForce(recipe, this, this.snapshotSync());
    try {
      checkBy(next, fits);
      if (own instanceof QuantizedTensor) requireSameSpec(own.spec, next);
      return next;
    } catch (error) {
      next.dispose();
      throw error;
    }
  }

  /** Returns the quantizer of a role. Both runs of a recomputed region use the scales of the first run. */
  quantizer(role: ForwardRole, whole = false): Quantizer {
    return given(this.#call).quantizer(role, whole);
  }

  /** Returns the quantization of the backward pass that belongs to the current forward pass. */
  forBackward(): BackwardQuantization {
    return given(this.#call).forBackward();
  }

  /** Returns the quantizer for this rank's part of the weight. */
  weightQuantizer(weight: Parameter): Quantizer {
    return given(this.#call).weightQuantizer(weight.sharding);
  }

  /**
   * Whether quantizing the rows of each rank separately gives the codes and scales of the whole weight. It does not if a block
   * crosses the boundary between ranks, for custom quantizers, which do not take ranks into account, and for stochastic rounding,
   * whose random bits depend on the order of calls.
   */
  quantizesRows(weight: Parameter): boolean {
    const { own, sharding } = weight;
    if (own instanceof QuantizedTensor) return true;
    const { recipe } = given(this.#call);
    const { spec } = this.quantizer("weight");
    if (!sharding || recipe.kind === "custom" || spec.stochastic) return false;
    return areWholeBlocksOf(spec, sharding.rows);
  }

  /** Whether a call that asks for a weight quantizes it anew, by what can be known before. */
  quantizesAnew(use: WeightUse): boolean {
    if (isCached(use)) return false;
    const call = this.#call;
    return call === this.#inForce || (call?.weight === undefined && this.#inForce?.forward === undefined);
  }

  /** Begins to quantize the rows of a weight before the call that needs them; undefined where that call may do otherwise. */
  early(weight: Parameter, columnwise: boolean): EarlyWeight | undefined {
    const { own, sharding } = weight;
    const inForce = this.#inForce;
    if (!inForce || this.#restored || !sharding || own instanceof QuantizedTensor) return undefined;
    return new EarlyWeight(this, own, inForce.early(sharding, columnwise), sharding);
  }

  /** Whether this call would quantize the weight as it was quantized early. */
  agrees({ of, early }: EarlyWeight, weight: Parameter, columnwise: boolean): boolean {
    const call = this.#call;
    if (of !== this || early.columnwise !== columnwise || !call || !this.#inForce?.isSame(early))
      return false;
    return call === this.#inForce || call.weightQuantizer(weight.sharding) === early.quantizer;
  }

  /** Records what the call would have recorded. */
  recordEarly({ early }: EarlyWeight): void {
    this.#inForce?.recordEarly(early);
  }

  /** Returns the quantized weight, or this rank's rows of it if those are gathered later. The caller disposes of it. */
  weight(parameter: Parameter, use: WeightRequest): QuantizedTensor {
    const repeated = this.#call?.weight;
    if (repeated) return repeated.share();
    if (!isCached(use))
      return this.#quantized(parameter, use, (quantizer, values) =>
        quantizer.setUsage({ rowwise: true, columnwise: use.columnwise }).quantize(values),
      );
    if (this.#call instanceof HeldCall) throw differs("takes a weight from the cache");
    const cached = this.#cached(parameter, use);
    this.#held?.holdWeight(cached);
    return cached.share();
  }

  /** Returns the cached weight after creating or updating it as the call requests. */
  #cached(parameter: Parameter, use: WeightRequest): QuantizedTensor {
    const { isFirstMicrobatch, skipFp8WeightUpdate, columnwise } = use;
    const cached = this.#cachedWeight;
    if (cached && (cached.columnwise || !columnwise)) {
      const noop = isFirstMicrobatch ? undefined : skipFp8WeightUpdate;
      if (isFirstMicrobatch || noop)
        this.#quantized(parameter, use, (quantizer, values) =>
          quantizer.updateQuantized(values, cached, noop ? { noop } : {}),
        );
      return cached;
    }
    const made = this.#quantized(parameter, use, (quantizer, values) =>
      quantizer.setUsage({ rowwise: true, columnwise }).quantize(values),
    );
    this.#dropWeight();
    this.#cachedWeight = persistent(made);
    return made;
  }

  /** Quantizes the weight or this rank's rows of it, and then records the amax of the whole weight. */
  #quantized<R>(
    parameter: Parameter,
    { gathers = false }: WeightRequest,
    run: (quantizer: Quantizer, values: Tensor) => R,
  ): R {
    const { own, sharding } = parameter;
    if (!sharding || !gathers)
      return run(this.quantizer("weight"), wideOf("linear: the weight", sharding?.borrow() ?? own));
    const result = run(this.weightQuantizer(parameter), wideOf("linear: the weight", own));
    given(this.#call).shareWeightAmax(sharding);
    return result;
  }

  #dropWeight(): void {
    this.#cachedWeight?.dispose();
    this.#cachedWeight = undefined;
  }

  /** Returns the current state, or a restored state that has not been applied yet. */
  snapshotSync(): QuantizationSnapshot | undefined {
    return this.#restored ? this.#restored.snapshot : this.#inForce?.snapshotSync();
  }

  restore(snapshot: QuantizationSnapshot | undefined): void {
    const own = snapshot === undefined ? undefined : checkSnapshot("restore", snapshot, "the snapshot");
    this.#restored = { snapshot: own };
    this.#dropWeight();
  }

  dispose(): void {
    this.release();
    this.#dropWeight();
    this.#inForce?.dispose();
    this.#inForce = undefined;
    this.#call = undefined;
  }
}

/** Returns a quantizer for this rank's rows of a quantized parameter. It calls `share` after each quantization. */
function sharing(quantizer: Quantizer, share: () => void): QuantizerOps {
  return {
    dequantize: (t, dtype) => quantizer.dequantize(t, dtype),
    deriveColumnwise: (t) => quantizer.deriveColumnwise(t),
    updateQuantized(source, t, call) {
      quantizer.updateQuantized(source, t, call);
      share();
    },
  };
}

/** Returns the error for a recomputed body whose second run differs from its first. */
function differs(what: string): ArgumentError {
  return new ArgumentError(`recompute: in its second run the body ${what}; it must do the same both times`);
}

/** Returns `quantization`. Throws `ArgumentError` if it is undefined. */
function given<T>(quantization: T | undefined): T {
  if (quantization) return quantization;
  throw new ArgumentError("this layer has no quantizers; it is not in autocast");
}

function checkBy(inForce: RecipeInForce, fits: Fits): void {
  fits((role) => inForce.quantizer(role), inForce.quantizer("gradOutput"));
}

function isOther(recipe: Recipe, before: Recipe | undefined): boolean {
  return recipe !== before && recipe.key !== before?.key;
}

/** Throws `ArgumentError` if the weight was quantized with another spec than the recipe's. */
function requireSameSpec(spec: QuantizeSpec, next: RecipeInForce): void {
  const wanted = next.quantizer("weight").spec;
  const field = difference(spec, wanted);
  if (field)
    throw new ArgumentError(
      `this layer's weight was quantized with ${field} ${spec[field]} and ${next.recipe.constructor.name} takes ${wanted[field]}; give quantizedModelInit and autocast the same recipe`,
    );
}

/** Returns the name of the first field in which two specs differ, or undefined. */
function difference(a: QuantizeSpec, b: QuantizeSpec): keyof QuantizeSpec | undefined {
  return (Object.keys(b) as (keyof QuantizeSpec)[]).find((key) => a[key] !== b[key]);
}
