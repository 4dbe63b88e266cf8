/** The base of all quantizers. */
import type { Backend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import { type BlockFormatName, blockFormat, isDirectionless, type Tile } from "../formats/block.js";
import { resolveFormat } from "../formats/derive.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { transposeCopy } from "../ops/layout/layout.js";
import { type ActivationQuantizeOptions, activationQuantize } from "../ops/quantize/activation-quantize.js";
import { type BiasGradQuantizeResult, biasGradQuantize } from "../ops/quantize/bias-grad-quantize.js";
import { dequantize } from "../ops/quantize/dequantize.js";
import { type NormQuantizeResult, normQuantize } from "../ops/quantize/norm-quantize.js";
import { type QuantizeInputs, quantize, quantizeInto } from "../ops/quantize/quantize.js";
import { emptyQuantized, type QuantizedLayout } from "../ops/quantize/target.js";
import type { NormParameters } from "../ops/rows/norm.js";
import { boolean, type Given, instance, type OptionTable, oneOf, optionsOf, u64 } from "../options.js";
import type { RandomSource } from "../random.js";
import {
  checkCall,
  checkUsage,
  type QuantizeCall,
  type QuantizedCopy,
  type QuantizedTensor,
  type QuantizerOps,
  type QuantizeSpec,
  requireQuantized,
  type ScaleLayout,
  type Usage,
} from "../tensor/quantized.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import { requireSpec, SCALE_LAYOUTS } from "../tensor/spec.js";
import type { Tensor } from "../tensor/tensor.js";

/** Options every quantizer takes. */
export interface QuantizerOptions {
  /** Which copies to make. Default rowwise only. */
  readonly rowwise?: boolean | undefined;
  /** Whether to make the copy scaled along M. Default false. */
  readonly columnwise?: boolean | undefined;
  /** How scales are stored. Default `logical`. */
  readonly scaleLayout?: ScaleLayout | undefined;
}

/** The rows of `QuantizerOptions` in the tables of quantizers' options. */
export const QUANTIZER_OPTIONS: OptionTable<QuantizerOptions> = {
  rowwise: boolean,
  columnwise: boolean,
  scaleLayout: oneOf(SCALE_LAYOUTS),
};

const checkOwn = optionsOf(QUANTIZER_OPTIONS);

/** Makes a spec; settings that do not apply are off. */
export function makeSpec(quantizer: BlockFormatName, fields: Given<QuantizeSpec>): QuantizeSpec {
  const row = blockFormat(quantizer);
  const defaults: QuantizeSpec = {
    quantizer,
    format: row.elements[0] as ScalarFormat,
    tile: row.tiles[0] as Tile,
    pow2Scales: false,
    amaxEpsilon: 0,
    rht: false,
    rhtSigns: 0,
    stochastic: false,
    fourOverSix: "none",
    e4m3Max: 448,
    compact: false,
  };
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  const spec: QuantizeSpec = { ...defaults, ...given };
  const made = Object.freeze({ ...spec, format: resolveFormat(spec.format) });
  requireSpec(made);
  return made;
}

/** Quantizes wide tensors by one spec. Subclasses choose the spec and supply further inputs of a quantization. */
export abstract class Quantizer implements QuantizerOps {
  /** All settings that determine the bits of its results, except random bits; frozen. */
  readonly spec: QuantizeSpec;
  readonly #scaleLayout: ScaleLayout;
  #usage: Usage;

  /**
   * Only the fields of `QuantizerOptions` are read; subclasses check the others. Throws `ArgumentError` for a spec that says
   * nothing.
   */
  constructor(spec: QuantizeSpec, options: QuantizerOptions = {}) {
    requireSpec(spec);
    this.spec = Object.isFrozen(spec) ? spec : Object.freeze({ ...spec });
    const { rowwise = true, columnwise = false, scaleLayout = "logical" } = options;
    checkOwn(new.target.name, { rowwise, columnwise, scaleLayout });
    this.#usage = { rowwise, columnwise };
    this.#scaleLayout = scaleLayout;
  }

  /** The inputs of one quantization besides the source. */
  protected inputs(): QuantizeInputs {
    return {};
  }

  /** Called after each successful quantization that used `inputs`. */
  protected quantized(): void {}

  /** The copies that calls currently make. */
  get usage(): Usage {
    return this.#usage;
  }

  /**
   * Changes which copies later calls make.
   *
   * @throws `ArgumentError` for what says neither true nor false of a copy.
   */
  setUsage(usage: Partial<Usage>): this {
    checkUsage("setUsage", usage);
    const { rowwise = this.#usage.rowwise, columnwise = this.#usage.columnwise } = usage;
    this.#usage = { rowwise, columnwise };
    return this;
  }

  /**
   * An uninitialised quantized tensor for `shape`; see `emptyQuantized` for what it refuses.
   *
   * @throws `ShapeError` for a shape that the format's blocks do not divide, `ArgumentError` for anything but a backend, a type
   * that is not wide, or a quantizer without any usage, `DisposedError` for a backend that was disposed of.
   */
  makeEmpty(backend: Backend, shape: Shape, dtype: WideDType = "bf16"): QuantizedTensor {
    return emptyQuantized(backend, shape, dtype, this.#layout());
  }

  /** What its results are to be. */
  #layout(): QuantizedLayout {
    return { spec: this.spec, usage: this.#usage, scaleLayout: this.#scaleLayout, ops: this };
  }

  /**
   * The quantized form of `x` (f32, bf16 or f16; any leading dimensions).
   *
   * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for a shape that the format's blocks do not
   * divide, `ArgumentError` for a scale or an amax on another backend, `DisposedError` for a tensor that was disposed of.
   */
  quantize(x: Tensor): QuantizedTensor {
    const result = quantize(x, this.#layout(), this.inputs());
    this.quantized();
    return result;
  }

  /**
   * The quantized form of an activation of `x`, of its gated form or, given the gradient of that, of the gradient of
   * `x`: one pass where the backend has one. Per-tensor FP8 casts the f32 values; the others see them rounded to the type of
   * `x`, or of the gradient (numerics.md §7.3).
   *
   * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for a shape that the format's blocks do not
   * divide or for a gradient that does not fit, `ArgumentError` for an option outside its domain or tensors on different
   * backends, `DisposedError` for a tensor that was disposed of.
   */
  activationQuantize(x: Tensor, options: ActivationQuantizeOptions): QuantizedTensor {
    const result = activationQuantize(x, options, this.#layout(), this.inputs());
    this.quantized();
    return result;
  }

  /**
   * The quantized form of the norm of the rows of `x`, with the statistics for `normBackward`: one pass where the backend
   * has one. Per-tensor FP8 under a scale given casts the f32 values; the others see them rounded to the type of `x`
   * (numerics.md §7.3).
   *
   * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for a shape that the format's blocks do not
   * divide or for parameters that are not [K], `ArgumentError` for an option outside its domain or tensors on different
   * backends, `DisposedError` for a tensor that was disposed of.
   */
  normQuantize(x: Tensor, norm: NormParameters): NormQuantizeResult {
    const result = normQuantize(x, norm, this.#layout(), this.inputs());
    this.quantized();
    return result;
  }

  /**
   * The quantized form of the gradient `grad` [..., K], and the gradient of a bias of K elements: the bits of `quantize` and of
   * `columnSum`, in one pass where the backend has one. The bias gradient is of `dtype`, by default that of `grad`.
   *
   * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for a shape that the format's blocks do not
   * divide, `ArgumentError` for a type that is not wide or tensors on different backends, `DisposedError` for a tensor that was
   * disposed of.
   */
  biasGradQuantize(grad: Tensor, dtype?: WideDType): BiasGradQuantizeResult {
    const result = biasGradQuantize(grad, dtype, this.#layout(), this.inputs());
    this.quantized();
    return result;
  }

  /**
   * Quantizes `source` into `target`.
   *
   * @throws `ArgumentError` unless a quantizer of the same spec made that.
   * @throws `DTypeError` for a tensor that is not of a wide type or a target that is not quantized, `ShapeError` for a
   * source of another shape, `DisposedError` for a tensor that was disposed of.
   */
  updateQuantized(source: Tensor, target: QuantizedTensor, call: QuantizeCall = {}): void {
    requireQuantized("updateQuantized", "target", target);
    if (target.spec !== this.spec) this.#requireOwnSpec(target);
    const { noop } = checkCall("updateQuantized", call);
    const inputs = this.inputs();
    quantizeInto(source, target, noop ? { ...inputs, noop } : inputs);
    this.quantized();
  }

  #requireOwnSpec(target: QuantizedTensor): void {
    const differs = Object.entries(this.spec).find(
      ([key, value]) => target.spec[key as keyof QuantizeSpec] !== value,
    );
    if (differs) {
      const [key, value] = differs;
      const theirs = target.spec[key as keyof QuantizeSpec];
      throw new ArgumentError(
        `updateQuantized: the target was made with ${key} ${theirs}, this quantizer has ${value}; use the one that made it`,
      );
    }
  }

  /**
   * The values of `t`, rounded once to `dtype`, by default its nominal type. A NaN code gives NaN.
   *
   * @throws `DTypeError` for what is not quantized.
   * @throws `ArgumentError` for a type that is not wide, `DisposedError` for a tensor that was disposed of.
   */
  dequantize(t: QuantizedTensor, dtype?: WideDType): Tensor<WideDType> {
    return dequantize(t, dtype);
  }

  /**
   * Derives the columnwise copy from the rowwise one, for square and per-tensor scales.
   *
   * @throws `DTypeError` for a tensor that is not quantized, `ArgumentError` for a copy that cannot be derived, `DisposedError`
   * for a tensor that was disposed of.
   */
  deriveColumnwise(t: QuantizedTensor): QuantizedCopy {
    const { quantizer, tile } = requireQuantized("deriveColumnwise", "t", t).spec;
    if (isDirectionless(t.spec)) return transposeCopy(t);
    throw new ArgumentError(
      `the columnwise copy of a ${quantizer} ${tile} tensor does not follow from its rowwise one; quantize the source with columnwise usage`,
    );
  }
}

/** The random bits of a run: each quantization uses the next offset, in program order. */
export class RandomState {
  #seed = 0n;
  #offset = 0n;

  /** Throws `ArgumentError` for anything but an unsigned 64-bit integer; so do `seed` and `offset` where they are set. */
  constructor(seed: bigint, offset = 0n) {
    this.seed = seed;
    this.offset = offset;
  }

  /** The key of all random bits, unsigned, 64 bits. */
  get seed(): bigint {
    return this.#seed;
  }

  set seed(value: bigint) {
    u64("RandomState", "seed", value);
    this.#seed = value;
  }

  /** The position that the next quantization takes, unsigned, 64 bits. */
  get offset(): bigint {
    return this.#offset;
  }

  set offset(value: bigint) {
    u64("RandomState", "offset", value);
    this.#offset = value;
  }

  /** The draw that `next` will return. */
  get current(): RandomSource {
    return { seed: this.#seed, offset: this.#offset };
  }

  /** Returns the current draw and advances; the last offset wraps to the first. */
  next(): RandomSource {
    const { current } = this;
    this.#offset = BigInt.asUintN(64, this.#offset + 1n);
    return current;
  }
}

export const randomState = instance(RandomState, "a RandomState, such as new RandomState(1n)");
