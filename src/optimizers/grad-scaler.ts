/** Dynamic scaling of the loss, for gradients of small range such as those in f16. */
import { guardReceivers, isObject } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { tensor } from "../ops/create.js";
import { scaled } from "../ops/elementwise/operators.gen.js";
import { atLeastZero, domain, instance, integer, needed, optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { Scope } from "../tensor/scope.js";
import { clipGradNorm } from "./clip-grad-norm.js";
import { Optimizer } from "./optimizer.js";

/** Options of `GradScaler`. All fields are optional. */
export interface GradScalerOptions {
  /** The first loss scale, a positive number. Default 65536. Powers of two scale without rounding. */
  readonly initScale?: number | undefined;
  /** The factor of the scale after `growthInterval` updates in a row without an overflow, more than 1. Default 2. */
  readonly growthFactor?: number | undefined;
  /** The factor of the scale after an overflow, between 0 and 1. Default 0.5. */
  readonly backoffFactor?: number | undefined;
  /** The number of updates without an overflow after which the scale grows. Default 2000. */
  readonly growthInterval?: number | undefined;
}

/** Options of `GradScaler.step`. */
export interface ScaledStepOptions {
  /** The norm above which the unscaled gradients are scaled down, as by `clipGradNorm`. Default: none. */
  readonly maxNorm?: number | undefined;
}

/** The result of `GradScaler.step`. */
export interface ScaledStep {
  /** The 2-norm of all unscaled gradients together. NaN or infinite if a gradient overflowed. */
  readonly norm: number;
  /** Whether the optimizer has stepped. The step is skipped if a gradient is not finite. */
  readonly stepped: boolean;
}

/** The state of a `GradScaler`, to save as `extra` of a checkpoint. */
export interface GradScalerState {
  /** The loss scale. */
  readonly scale: number;
  /** The number of updates since the scale last changed. */
  readonly growthTracker: number;
}

/** Whether `scale` and its reciprocal are positive and finite in f32. */
function isScale(scale: number): boolean {
  // the reciprocal of infinity is 0
  const reciprocal = Math.fround(1 / scale);
  return reciprocal > 0 && Number.isFinite(reciprocal);
}

const positive = domain(
  (value) => typeof value === "number" && isScale(Math.fround(value)),
  "a positive f32 number whose reciprocal is finite in f32",
);
const growth = domain(
  (value) => typeof value === "number" && value > 1 && Number.isFinite(Math.fround(value)),
  "a number above 1 that is finite in f32",
);
const backoff = domain(
  (value) => typeof value === "number" && value > 0 && value < 1,
  "a number between 0 and 1, neither included",
);
const checkOptions = optionsOf<GradScalerOptions>({
  initScale: positive,
  growthFactor: growth,
  backoffFactor: backoff,
  growthInterval: integer(1),
});
const checkStep = optionsOf<ScaledStepOptions>({ maxNorm: atLeastZero });
const checkState = optionsOf<GradScalerState>(
  { scale: needed(positive), growthTracker: needed(integer(0)) },
  "state",
);
const requireOptimizer = instance(Optimizer, "an optimizer, such as AdamW");

/** The largest finite f32. As `maxNorm` it disables the clipping of scaled gradients; the unscaled norm is clipped afterwards. */
const MAX_F32 = (2 - 2 ** -23) * 2 ** 127;

/**
 * Scales the loss so that small gradients do not round to zero, and skips a step whose gradients overflowed, as
 * `torch.amp.GradScaler` does:
 *
 * ```ts
 * scaler.scale(loss).backward();
 * await scaler.step(optimizer);
 * scaler.update();
 * ```
 *
 * Gradients have overflowed if the norm of `clipGradNorm` is not finite. All ranks that have parts of the model get the same
 * norm, so all of them step or none does, and all have the same scale. `step` multiplies gradients by f32(1 / scale), and by
 * the factor of `maxNorm`, while it updates; the gradients themselves stay scaled. An element of at least 2^64 in magnitude
 * counts as an overflow, because its square overflows f32.
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class GradScaler {
  static {
    guardReceivers(this, (x) => isObject(x) && #scale in x);
  }

  /** The options, with defaults for missing ones. */
  readonly options: { readonly [K in keyof GradScalerOptions]-?: number };
  #scale: number;
  #growthTracker = 0;
  /** Whether a step since the last update has overflowed. Undefined if there was no step. */
  #hasOverflowed: boolean | undefined;

  constructor(options: GradScalerOptions = {}) {
    const ownOptions = checkOptions("GradScaler", options);
    const { initScale = 65_536, growthFactor = 2, backoffFactor = 0.5, growthInterval = 2000 } = ownOptions;
    this.options = Object.freeze({ initScale, growthFactor, backoffFactor, growthInterval });
    this.#scale = Math.fround(initScale);
  }

  /** The loss scale and the number of updates since it last changed. */
  get state(): GradScalerState {
    return { scale: this.#scale, growthTracker: this.#growthTracker };
  }

  /** Throws `ArgumentError` for a value that is not a state. */
  set state(state: GradScalerState) {
    const { scale, growthTracker } = checkState("GradScaler", state);
    this.#scale = Math.fround(scale);
    this.#growthTracker = growthTracker;
    this.#hasOverflowed = undefined;
  }

  /**
   * Returns loss * scale, in the dtype of the loss. The gradient of the loss is multiplied by the scale.
   *
   * @throws `DTypeError` for a loss that is not f32, bf16 or f16, `ArgumentError` for an argument that is not a tensor,
   * `DisposedError` for a disposed tensor.
   */
  scale(loss: VariableLike): Variable {
    const source = variableOf("scale", "loss", loss);
    const scale = this.#scale;
    return differentiableOne([source], () => ({
      result: scaled(wideOf("scale: the loss", source.value), scale),
      backward: (grad) => [scaled(wideOf("scale: the gradient", grad), scale)],
    }));
  }

  /**
   * Steps the optimizer with unscaled gradients, or skips the step if one of them is not finite. It waits for the device. All
   * ranks that have parts of the model must call it, as `clipGradNorm`.
   *
   * @throws `ArgumentError` for an argument that is not an optimizer, an invalid option value, and as `clipGradNorm` does;
   * `DistributedError` for a group that has failed.
   */
  async step(optimizer: Optimizer, options: ScaledStepOptions = {}): Promise<ScaledStep> {
    requireOptimizer("step", "optimizer", optimizer);
    const { maxNorm } = checkStep("step", options);
    const { norm: deviceNorm, factor } = clipGradNorm(optimizer, MAX_F32);
    factor.dispose();
    const [scaledNorm = Number.NaN] = await deviceNorm.data();
    deviceNorm.dispose();
    const inverse = Math.fround(1 / this.#scale);
    const norm = Math.fround(scaledNorm * inverse);
    const stepped = Number.isFinite(scaledNorm);
    this.#hasOverflowed = this.#hasOverflowed === true || !stepped;
    if (!stepped) return { norm, stepped };
    const gradScale = Math.fround(inverse * clipFactor(norm, maxNorm));
    using _ = new Scope();
    optimizer.step({ gradScale: tensor(deviceNorm.backend, [gradScale]) });
    return { norm, stepped };
  }

  /**
   * Changes the scale for the next pass: after an overflow it is multiplied by `backoffFactor`, after `growthInterval` updates
   * without one by `growthFactor`, unless the new scale or its reciprocal would be infinite. Call it once for all optimizers of a
   * pass.
   *
   * @throws `ArgumentError` if `step` was not called since the last update.
   */
  update(): void {
    if (this.#hasOverflowed === undefined)
      throw new ArgumentError(
        "update: there was no step since the last update; await step() of each optimizer",
      );
    const { growthFactor, backoffFactor, growthInterval } = this.options;
    this.#growthTracker = this.#hasOverflowed ? 0 : this.#growthTracker + 1;
    if (this.#hasOverflowed) this.#multiply(backoffFactor);
    else if (this.#growthTracker >= growthInterval) {
      this.#multiply(growthFactor);
      this.#growthTracker = 0;
    }
    this.#hasOverflowed = undefined;
  }

  /** Multiplies the scale, unless the product or its reciprocal is not finite in f32. */
  #multiply(factor: number): void {
    const product = Math.fround(this.#scale * factor);
    if (isScale(product)) this.#scale = product;
  }
}

/** Returns min(1, maxNorm / (norm + 1e-6)) in f32, the factor of `clipGradNorm`. */
function clipFactor(norm: number, maxNorm: number | undefined): number {
  if (maxNorm === undefined) return 1;
  const divisor = Math.fround(norm + Math.fround(1e-6));
  return Math.min(1, Math.fround(Math.fround(maxNorm) / divisor));
}
