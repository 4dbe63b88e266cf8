/**
 * The base class of quantizers. A quantized [M, K] matrix has a rowwise copy (scale blocks along
 * K), a columnwise copy (scale blocks along M), or both.
 */

import type { Backend } from "../backends/backend.js";
import type { MatrixPart } from "../backends/ops.js";
import { guardReceivers, inherits, isObject } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { isLineWide, underivable, usesTensorAmax } from "../formats/block.js";
import { castTo } from "../ops/cast/cast.js";
import { activation, activationBackward, gated, gatedBackward } from "../ops/elementwise/activation.js";
import { derivedCopy } from "../ops/layout/derived-copy.js";
import { type ActivationQuantizeOptions, activationQuantize } from "../ops/quantize/activation-quantize.js";
import { type BiasGradQuantizeResult, biasGradQuantize } from "../ops/quantize/bias-grad-quantize.js";
import { dequantize } from "../ops/quantize/dequantize.js";
import { type NormQuantizeResult, normQuantize } from "../ops/quantize/norm-quantize.js";
import { type QuantizeInputs, quantize, quantizeInto } from "../ops/quantize/quantize.js";
import { emptyQuantized, type QuantizedLayout } from "../ops/quantize/target.js";
import { layerNorm, type NormParameters, type NormResult, rmsNorm } from "../ops/rows/norm.js";
import { boolean, fieldsOf, nested, type OptionTable, oneOf, optionsOf } from "../options.js";
import {
  checkCall,
  checkRandomBits,
  checkUsage,
  type GivenRandomBits,
  type QuantizeCall,
  type QuantizedCopy,
  type QuantizedTensor,
  type QuantizerOps,
  type QuantizeSpec,
  requireQuantized,
  type ScaleLayout,
  type Usage,
} from "../tensor/quantized.js";
import { requireWide } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import { asMatrix, type Shape, type WideDType } from "../tensor/shape.js";
import { requireSameSpec, requireSpec, SCALE_LAYOUTS } from "../tensor/spec.js";
import type { Tensor } from "../tensor/tensor.js";
import { checkShard, partOf, type Shard, shardAmaxes, wholeAmaxes } from "./shard.js";

/** Options of every quantizer. All fields are optional. */
export interface QuantizerOptions {
  /** Whether to make the rowwise copy, with scale blocks along K. Default true. */
  readonly rowwise?: boolean | undefined;
  /** Whether to make the columnwise copy, with scale blocks along M. Default false. */
  readonly columnwise?: boolean | undefined;
  /** How scales are stored. Default `logical`. */
  readonly scaleLayout?: ScaleLayout | undefined;
  /**
   * If given, the tensors to quantize are this rank's parts of larger tensors. The codes and scales are then slices of the codes
   * and scales of the full tensor: an amax is the maximum over the group, and stochastic rounding selects random bits by the
   * index in the full tensor. Blocks start at the beginning of each part. Not with per-row scales or amaxes. Default: the tensors
   * are not divided.
   */
  readonly shard?: Shard | undefined;
}

/** @shared The checks of the options that all quantizers have. */
export const QUANTIZER_OPTIONS: OptionTable<QuantizerOptions> = {
  rowwise: boolean,
  columnwise: boolean,
  scaleLayout: oneOf(SCALE_LAYOUTS),
  shard: nested(checkShard),
};

const checkOwn = optionsOf(QUANTIZER_OPTIONS);

/**
 * The base class of quantizers, which quantize f32, bf16 and f16 tensors as a spec says. Subclasses choose the spec and supply
 * the further inputs of a quantization.
 */
export abstract class Quantizer implements QuantizerOps {
  static {
    guardReceivers(this);
  }

  /** All settings that determine the bits of its results, except random bits. Frozen. */
  readonly spec: QuantizeSpec;
  readonly #scaleLayout: ScaleLayout;
  /** Which part of larger tensors this rank's tensors are. Undefined if they are not divided. */
  readonly shard: Shard | undefined;
  #usage: Usage;

  /** @internal Whether `x` is a quantizer, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #usage in x && inherits(this, x);
  }

  /**
   * Reads only the fields of `QuantizerOptions`; subclasses check their own options. Throws `ArgumentError` for an invalid
   * spec, and for a shard with scales or amaxes of rows.
   */
  constructor(spec: QuantizeSpec, options: QuantizerOptions = {}) {
    this.spec = requireSpec(spec);
    const ownOptions = checkOwn(new.target.name, fieldsOf(new.target.name, options, QUANTIZER_OPTIONS));
    const { rowwise = true, columnwise = false, scaleLayout = "logical", shard } = ownOptions;
    this.shard = shard && shard.group.size > 1 ? shard : undefined;
    if (this.shard && (isLineWide(this.spec.tile) || this.spec.rowScaled))
      throw new ArgumentError(
        `${this.spec.quantizer}: shard is for scales of tensors or blocks; a divided row or column has no scale or amax per rank; gather it first`,
      );
    this.#usage = { rowwise, columnwise };
    this.#scaleLayout = scaleLayout;
  }

  /** Returns the inputs of one quantization other than the tensor. Subclasses override it. */
  protected inputs(): QuantizeInputs {
    return {};
  }

  /**
   * Calls `run`, one quantization of `x`, with its inputs. For a part of a larger tensor, these include the amaxes of the full
   * tensor and the position in it. `unrounded` has the values of x before rounding.
   */
  #quantizing<R>(
    op: string,
    x: Tensor,
    run: (inputs: QuantizeInputs) => R,
    unrounded?: Tensor<WideDType>,
  ): R {
    const { shard, spec } = this;
    const inputs = this.inputs();
    if (!shard) return run(inputs);
    const values = requireWide(op, "x", x);
    const part = this.#part(values);
    if (!usesTensorAmax(spec) || inputs.amax) return run({ ...inputs, part });
    const amaxes = wholeAmaxes(shard, spec, values, unrounded ?? values);
    try {
      return run({ ...inputs, ...amaxes, part });
    } finally {
      amaxes.amax?.dispose();
      amaxes.amaxColumnwise?.dispose();
    }
  }

  /** The position of `x` in the full tensor, by which random bits are selected. */
  #part({ shape }: Tensor): MatrixPart | undefined {
    return this.shard && this.spec.stochastic ? partOf(this.shard, asMatrix(shape)) : undefined;
  }

  /**
   * Whether a fused operation must compute its values before it quantizes them: their amax has to be reduced over ranks first, or
   * random bits are selected by their position in the full tensor.
   */
  get #computesFirst(): boolean {
    return this.shard !== undefined && (usesTensorAmax(this.spec) || this.spec.stochastic);
  }

  /** The form of `activationQuantize` that computes the values before it quantizes them (`#computesFirst`). */
  #quantizeActivated(x: Tensor, options: ActivationQuantizeOptions): QuantizedTensor {
    using scope = new Scope();
    const values = activated(x, options);
    const rounded = castTo(values, requireWide("activationQuantize", "x", options.grad ?? x).dtype);
    const result = this.#quantizing(
      "activationQuantize",
      rounded,
      (inputs) => quantize(rounded, this.#layout(), inputs),
      values,
    );
    this.quantized();
    return scope.keep(result);
  }

  /** The form of `normQuantize` that computes the values before it quantizes them (`#computesFirst`). */
  #quantizeNormed(x: Tensor, norm: NormParameters): NormQuantizeResult {
    using scope = new Scope();
    const { out: values, mean, rstd } = normed(x, norm);
    const out = scope.keep(this.quantize(values));
    scope.keep(rstd);
    return mean ? { out, rstd, mean: scope.keep(mean) } : { out, rstd };
  }

  /** Called after each successful quantization that used `inputs`. Subclasses override it. */
  protected quantized(): void {}

  /** The copies that the quantizer currently creates. */
  get usage(): Usage {
    return this.#usage;
  }

  /**
   * Changes the copies that later calls create. Returns this quantizer.
   *
   * @throws `ArgumentError` for a value that is not a boolean.
   */
  setUsage(usage: Partial<Usage>): this {
    const ownUsage = checkUsage("setUsage", usage);
    const { rowwise = this.#usage.rowwise, columnwise = this.#usage.columnwise } = ownUsage;
    this.#usage = { rowwise, columnwise };
    return this;
  }

  /**
   * Creates an uninitialized quantized tensor of `shape` and nominal type `dtype`.
   *
   * @throws `ShapeError` for a shape that the format's blocks do not divide, `ArgumentError` for an argument that is not a
   * backend, a dtype other than f32, bf16 and f16, or a quantizer that makes no copy, `DisposedError` for a disposed backend.
   */
  makeEmpty(backend: Backend, shape: Shape, dtype: WideDType = "bf16"): QuantizedTensor {
    return emptyQuantized(backend, shape, dtype, this.#layout());
  }

  /** The properties of the quantized tensors that this quantizer creates. */
  #layout(): QuantizedLayout {
    return { spec: this.spec, usage: this.#usage, scaleLayout: this.#scaleLayout, ops: this };
  }

  /**
   * Quantizes `x` (f32, bf16 or f16). Its leading dimensions are flattened into rows. Random bits for stochastic rounding can be
   * given by the caller.
   *
   * @throws `DTypeError` for a tensor that is not f32, bf16 or f16 or random bits that are not u32, `ShapeError` for a shape that
   * the format's blocks do not divide or another number of random bits than elements, `ArgumentError` for a scale, an amax or
   * random bits on another backend, and for random bits of a quantizer that rounds to nearest or of a copy that is not made,
   * `DisposedError` for a disposed tensor.
   */
  quantize(x: Tensor, call: GivenRandomBits = {}): QuantizedTensor {
    const ownCall = checkRandomBits("quantize", call);
    const result = this.#quantizing("quantize", x, (inputs) =>
      quantize(x, this.#layout(), { ...inputs, ...ownCall }),
    );
    this.#finish(ownCall);
    return result;
  }

  /** Ends a quantization. The random state advances only if the caller did not pass random bits. */
  #finish({ randomBits, randomBitsColumnwise }: GivenRandomBits): void {
    if (!randomBits && !randomBitsColumnwise) this.quantized();
  }

  /**
   * @internal The amaxes of this shard that `quantize` would reduce over the group; empty if it would reduce none. The caller
   * reduces them, passes them to `quantizeBy` and disposes of them.
   */
  amaxesOf(x: Tensor): readonly Tensor<"f32">[] {
    if (!this.shard || !usesTensorAmax(this.spec) || this.inputs().amax) return [];
    const values = requireWide("quantize", "x", x);
    return shardAmaxes(this.spec, values, values);
  }

  /** @internal Quantizes as `quantize` does, with the amaxes of `amaxesOf` after their reduction over the group. */
  quantizeBy(x: Tensor, [amax, amaxColumnwise]: readonly Tensor<"f32">[]): QuantizedTensor {
    if (!amax) return this.quantize(x);
    const inputs = { ...this.inputs(), amax, amaxColumnwise, part: this.#part(x) };
    const result = quantize(x, this.#layout(), inputs);
    this.quantized();
    return result;
  }

  /**
   * Computes an activation of `x`, a gated activation or, if its gradient is given, the gradient of `x`, and quantizes it. This
   * is one pass if the backend has a fused kernel. Per-tensor FP8 with a given scale quantizes the f32 values. The other
   * quantizers quantize values rounded to the dtype of `x` or of the gradient; a per-tensor amax is computed from the f32 values,
   * except in NVFP4 with the Hadamard transform (numerics.md §7.3).
   *
   * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for a shape that the format's blocks do not
   * divide or a gradient of a wrong shape, `ArgumentError` for an invalid option value or tensors on different backends,
   * `DisposedError` for a disposed tensor.
   */
  activationQuantize(x: Tensor, options: ActivationQuantizeOptions): QuantizedTensor {
    if (this.#computesFirst) return this.#quantizeActivated(x, options);
    const result = activationQuantize(x, options, this.#layout(), this.inputs());
    this.quantized();
    return result;
  }

  /**
   * Computes the norm of the rows of `x` and quantizes it. Also returns the statistics for `normBackward`. This is one pass if
   * the backend has a fused kernel. Per-tensor FP8 with a given scale quantizes the f32 values; the other quantizers quantize
   * values rounded to the dtype of `x` (numerics.md §7.3).
   *
   * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for a shape that the format's blocks do not
   * divide or parameters that are not [K], `ArgumentError` for an invalid option value or tensors on different backends,
   * `DisposedError` for a disposed tensor.
   */
  normQuantize(x: Tensor, norm: NormParameters): NormQuantizeResult {
    if (this.#computesFirst) return this.#quantizeNormed(x, norm);
    const result = normQuantize(x, norm, this.#layout(), this.inputs());
    this.quantized();
    return result;
  }

  /**
   * Quantizes the gradient `grad` [..., K] and returns its column sums too, the gradient of a bias of K elements. The results
   * are bitwise equal to the results of `quantize` and `columnSum`; it is one pass if the backend has a fused kernel. The bias
   * gradient has the type `dtype`, by default the type of `grad`.
   *
   * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for a shape that the format's blocks do not
   * divide, `ArgumentError` for a dtype other than f32, bf16 and f16 or tensors on different backends, `DisposedError` for a
   * disposed tensor.
   */
  biasGradQuantize(grad: Tensor, dtype?: WideDType): BiasGradQuantizeResult {
    const result = this.#quantizing("biasGradQuantize", grad, (inputs) =>
      biasGradQuantize(grad, dtype, this.#layout(), inputs),
    );
    this.quantized();
    return result;
  }

  /**
   * Quantizes `source` into `target`, a tensor that a quantizer with the same spec created.
   *
   * @throws `ArgumentError` if `target` was made with another spec.
   * @throws `DTypeError` for a source that is not f32, bf16 or f16 or a target that is not a quantized tensor, `ShapeError` for
   * a source of another shape, `DisposedError` for a disposed tensor.
   */
  updateQuantized(source: Tensor, target: QuantizedTensor, call: QuantizeCall = {}): void {
    requireWide("updateQuantized", "source", source);
    requireQuantized("updateQuantized", "target", target);
    requireSameSpec("updateQuantized", this.spec, target.spec);
    const checkedCall = checkCall("updateQuantized", call);
    this.#quantizing("updateQuantized", source, (inputs) =>
      quantizeInto(source, target, { ...inputs, ...checkedCall }),
    );
    this.#finish(checkedCall);
  }

  /**
   * Returns the values of `t`, rounded once to `dtype`; the default is the nominal dtype of `t`. A NaN code gives NaN.
   *
   * @throws `DTypeError` for an argument that is not a quantized tensor.
   * @throws `ArgumentError` for a dtype other than f32, bf16 and f16, `DisposedError` for a disposed tensor.
   */
  dequantize(t: QuantizedTensor, dtype?: WideDType): Tensor<WideDType> {
    return dequantize(t, dtype);
  }

  /**
   * Derives the columnwise copy from the rowwise one, with the bits that quantizing the source would give. This is possible if
   * scales are per tensor or per square tile and elements are rounded to nearest, without 4over6. Under the rules of NVFP4 that
   * compute a scale of the tensor other than `twoLevel`, the rows must fill the tiles.
   *
   * @throws `DTypeError` for an argument that is not a quantized tensor, `ArgumentError` for a copy that cannot be derived,
   * `DisposedError` for a disposed tensor.
   */
  deriveColumnwise(t: QuantizedTensor): QuantizedCopy {
    const { spec, shape } = requireQuantized("deriveColumnwise", "t", t);
    const why = underivable(spec, asMatrix(shape)[0]);
    if (why === undefined) return derivedCopy(t);
    throw new ArgumentError(
      `the columnwise copy of a ${spec.quantizer} ${spec.tile} tensor does not follow from its rowwise one, because ${why}; quantize the source with columnwise usage`,
    );
  }
}

/** @shared The f32 values of an activation, of its gated form, or of their gradients. */
export function activated(x: Tensor, options: ActivationQuantizeOptions): Tensor<WideDType> {
  const { gated: isGated = false, grad, ...activationOptions } = options;
  const form = { ...activationOptions, outDtype: "f32" } as const;
  if (grad) return (isGated ? gatedBackward : activationBackward)(grad, x, form);
  return (isGated ? gated : activation)(x, form);
}

function normed(x: Tensor, { gamma, beta, ...options }: NormParameters): NormResult {
  return beta ? layerNorm(x, gamma, beta, options) : rmsNorm(x, gamma, options);
}
