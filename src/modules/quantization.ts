/** What one linear layer quantizes with: the recipe in force, its state, and the cached weight. */
import type { Region } from "../autocast/autocast.js";
import type { Backend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import type { Quantizer, RandomState } from "../quantizers/quantizer.js";
import type { Recipe } from "../recipes/recipe.js";
import { requireRecipeSupport } from "../recipes/support.js";
import type { ForwardRole } from "../recipes/table.js";
import type { Value } from "../tape/value.js";
import { QuantizedTensor, type QuantizeSpec } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import { persistent } from "./parameter.js";
import { checkSnapshot, type QuantizationSnapshot, type QuantizationState } from "./quantization-state.js";
import { type BackwardQuantization, type CallQuantization, RecipeInForce } from "./recipe-in-force.js";
import { HeldCall } from "./recompute-call.js";
import { currentPhase, holdCall, type RecomputePhase, repeatedCall } from "./recompute-phase.js";

/** How a cached weight is used in one forward pass; TransformerEngine's names. */
export interface WeightUse {
  /** Absent: quantized anew; true: quantized and cached; false: taken from the cache. */
  readonly isFirstMicrobatch?: boolean | undefined;
  /** The cached weight is quantized again unless this f32 [1] holds exactly 1, which the device reads. */
  readonly skipFp8WeightUpdate?: Tensor<"f32"> | undefined;
}

/** A weight as one call needs it. */
export interface WeightRequest extends WeightUse {
  /** Whether the gradient of the input is wanted, for which the columnwise copy is. */
  readonly columnwise: boolean;
}

/** Throws where a call does not fit a recipe, given what that quantizes with. */
export type Fits = (quantizer: (role: ForwardRole) => Quantizer) => void;

/** TransformerEngine's fp8_meta of one product and its gradients. */
export class LinearQuantization implements QuantizationState {
  #inForce: RecipeInForce | undefined;
  /** What `restore` was given, until it is in force. */
  #restored: { readonly snapshot: QuantizationSnapshot | undefined } | undefined;
  #cachedWeight: QuantizedTensor | undefined;
  /** A recipe that `prepare` found to fit, until `enter` takes it up. */
  #ready: RecipeInForce | undefined;
  /** What the forward pass under way quantizes with: the recipe in force, or what the pass that it repeats did. */
  #call: CallQuantization | undefined;
  /** Where that pass is to be repeated. */
  #held: HeldCall | undefined;

  constructor(
    readonly backend: Backend,
    readonly random: RandomState,
  ) {}

  /**
   * A forward pass of the layer with that weight begins in a region. What the recipe before has left behind is kept where it
   * still means something. A weight that is quantized itself comes to follow this layer's scale, and to record its amaxes
   * here. A pass that is computed again changes none of that, and takes what it has held the first time. Throws before
   * anything has changed: `UnsupportedError`, `ArgumentError` for a quantized weight that is quantized otherwise than the
   * recipe says, or a pass that repeats none, and what `fits` throws, which is given the recipe's quantizers.
   */
  enter({ recipe, updates, group }: Region, weight: Value, fits: Fits): void {
    const phase = currentPhase();
    this.#held = undefined;
    if (phase?.pass === "again") {
      this.#call = this.#repeated(phase, recipe);
      fits((role) => this.quantizer(role));
      return;
    }
    const before = this.#before();
    if (isOther(recipe, before)) this.#change(recipe, before, weight, fits);
    else fits((role) => given(this.#inForce).quantizer(role));
    const current = given(this.#inForce);
    this.#call = current;
    if (phase) {
      this.#held = new HeldCall(current);
      holdCall(phase.calls, this, this.#held);
    }
    if (current.forward) updates?.add(current.forward, group);
  }

  /**
   * Throws what `enter` would, before another product of the same layer has changed anything. What it makes ready is for that
   * `enter`, or for `release`.
   */
  prepare({ recipe }: Region, weight: Value, fits: Fits): void {
    if (currentPhase()?.pass === "again") return;
    if (isOther(recipe, this.#before())) this.#ready = this.#fitting(recipe, weight, fits);
    else fits((role) => given(this.#inForce).quantizer(role));
  }

  /** Lets go of what was prepared and not entered. */
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

  #change(recipe: Recipe, before: Recipe | undefined, weight: Value, fits: Fits): void {
    const next = this.#ready ?? this.#fitting(recipe, weight, fits);
    this.#ready = undefined;
    if (weight instanceof QuantizedTensor) weight.updateQuantizer(next.quantizer("weight"));
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

  /** The recipe made ready for this product. Throws before anything has changed. */
  #fitting(recipe: Recipe, weight: Value, fits: Fits): RecipeInForce {
    requireRecipeSupport(recipe, this.backend);
    const next = new RecipeInForce(recipe, this, this.snapshotSync());
    try {
      fits((role) => next.quantizer(role));
      if (weight instanceof QuantizedTensor) requireSameSpec(weight.spec, next);
      return next;
    } catch (error) {
      next.dispose();
      throw error;
    }
  }

  /** The quantizer of a role. In a recomputed region both passes see the scales of the first. */
  quantizer(role: ForwardRole): Quantizer {
    return given(this.#call).quantizer(role);
  }

  /** What the backward pass of a forward pass that is under way will quantize with. */
  forBackward(): BackwardQuantization {
    return given(this.#call).forBackward();
  }

  /** The quantized weight, to be disposed of by the caller. */
  weight(weight: Tensor, use: WeightRequest): QuantizedTensor {
    const { isFirstMicrobatch, skipFp8WeightUpdate, columnwise } = use;
    const repeated = this.#call?.weight;
    if (repeated) return repeated.share();
    if (isFirstMicrobatch === undefined && skipFp8WeightUpdate === undefined)
      return this.quantizer("weight").setUsage({ rowwise: true, columnwise }).quantize(weight);
    if (this.#call instanceof HeldCall) throw differs("takes a weight from the cache");
    const cached = this.#cached(weight, use);
    this.#held?.holdWeight(cached);
    return cached.share();
  }

  /** The cached weight, made or quantized again where the use asks for that. */
  #cached(
    weight: Tensor,
    { isFirstMicrobatch, skipFp8WeightUpdate, columnwise }: WeightRequest,
  ): QuantizedTensor {
    const quantizer = this.quantizer("weight");
    const cached = this.#cachedWeight;
    if (cached && (cached.columnwise || !columnwise)) {
      const noop = isFirstMicrobatch ? undefined : skipFp8WeightUpdate;
      if (isFirstMicrobatch || noop) quantizer.updateQuantized(weight, cached, noop ? { noop } : {});
      return cached;
    }
    const made = quantizer.setUsage({ rowwise: true, columnwise }).quantize(weight);
    this.#dropWeight();
    this.#cachedWeight = persistent(made);
    return made;
  }

  #dropWeight(): void {
    this.#cachedWeight?.dispose();
    this.#cachedWeight = undefined;
  }

  /** The state in force, or the one restored where that is not in force yet. */
  snapshotSync(): QuantizationSnapshot | undefined {
    return this.#restored ? this.#restored.snapshot : this.#inForce?.snapshotSync();
  }

  restore(snapshot: QuantizationSnapshot | undefined): void {
    if (snapshot !== undefined) checkSnapshot("restore", snapshot, "the snapshot");
    this.#restored = { snapshot };
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

/** Of a body that does not do the same both times. */
function differs(what: string): ArgumentError {
  return new ArgumentError(`recompute: the second time, its body ${what}; let it do the same both times`);
}

/** Throws `ArgumentError` where there is none. */
function given<T>(quantization: T | undefined): T {
  if (quantization) return quantization;
  throw new ArgumentError("this layer has no quantizers; it is not in autocast");
}

function isOther(recipe: Recipe, before: Recipe | undefined): boolean {
  return recipe !== before && recipe.key !== before?.key;
}

/** Throws `ArgumentError` for a quantized weight that is quantized otherwise than the recipe says. */
function requireSameSpec(spec: QuantizeSpec, next: RecipeInForce): void {
  const wanted = next.quantizer("weight").spec;
  const field = difference(spec, wanted);
  if (field)
    throw new ArgumentError(
      `this layer's weight was quantized with ${field} ${spec[field]} and ${next.recipe.constructor.name} takes ${wanted[field]}; give quantizedModelInit and autocast the same recipe`,
    );
}

/** A field in which two ways to quantize differ. */
function difference(a: QuantizeSpec, b: QuantizeSpec): keyof QuantizeSpec | undefined {
  return (Object.keys(b) as (keyof QuantizeSpec)[]).find((key) => a[key] !== b[key]);
}
