/** What every quantizer does, whatever its scaling strategy. */
import type { Backend } from "../backends/backend.js";
import type { RandomSource } from "../backends/ops.js";
import { ArgumentError } from "../errors.js";
import { BLOCK_FORMATS, type BlockFormatName, type Tile } from "../formats/block.js";
import { resolveFormat } from "../formats/derive.js";
import {
  activationQuantize,
  activationResult,
  type QuantizeActivationOptions,
} from "../ops/activation-quantize.js";
import { dequantize } from "../ops/dequantize.js";
import { requireWide } from "../ops/execute.js";
import { transposeCopy } from "../ops/layout.js";
import { keptStatistics, type NormParameters } from "../ops/norm.js";
import { normQuantize, type QuantizedNorm } from "../ops/norm-quantize.js";
import { emptyQuantized, type QuantizedLayout, type QuantizeInputs, quantizeInto } from "../ops/quantize.js";
import { requireBigInt } from "../random.js";
import type {
  QuantizeCall,
  QuantizedCopy,
  QuantizedTensor,
  QuantizerOps,
  QuantizeSpec,
  ScaleLayout,
  Usage,
} from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** Options every quantizer takes. */
export interface QuantizerOptions {
  /** Which copies to make. Default rowwise only. */
  readonly rowwise?: boolean;
  readonly columnwise?: boolean;
  /** How scales are stored. Default `logical`. */
  readonly scaleLayout?: ScaleLayout;
}

/** A spec in which what does not apply is off. */
export function makeSpec(quantizer: BlockFormatName, fields: Partial<QuantizeSpec>): QuantizeSpec {
  const row = BLOCK_FORMATS[quantizer];
  const defaults: QuantizeSpec = {
    quantizer,
    format: row.elements[0],
    tile: row.tiles[0],
    pow2Scales: false,
    epsilon: 0,
    rht: false,
    rhtSigns: 0,
    stochastic: false,
    fourOverSix: "none",
    e4m3Max: 448,
    compact: false,
  };
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  const spec: QuantizeSpec = { ...defaults, ...given };
  const format = resolveFormat(spec.format);
  requireAmong(quantizer, "format", format, row.elements);
  requireAmong(quantizer, "tile", spec.tile, row.tiles);
  if (!(spec.epsilon >= 0))
    throw new ArgumentError(`${quantizer}: epsilon is ${spec.epsilon}; it must be at least 0`);
  return { ...spec, format };
}

function requireAmong(
  quantizer: string,
  what: string,
  value: string,
  allowed: readonly (string | Tile)[],
): void {
  if (allowed.includes(value)) return;
  throw new ArgumentError(`${quantizer}: ${what} ${value} is not one of ${allowed.join(", ")}`);
}

/**
 * Turns wide tensors into quantized ones by one spec. Subclasses choose the spec and supply what else a
 * quantization needs.
 */
export abstract class Quantizer implements QuantizerOps {
  #usage: Usage;

  constructor(
    readonly spec: QuantizeSpec,
    private readonly options: QuantizerOptions,
  ) {
    this.#usage = { rowwise: options.rowwise ?? true, columnwise: options.columnwise ?? false };
  }

  /** What one quantization takes besides the source. */
  protected inputs(): QuantizeInputs {
    return {};
  }

  get usage(): Usage {
    return this.#usage;
  }

  /** Changes which copies later calls make. */
  setUsage(usage: Partial<Usage>): this {
    this.#usage = { ...this.#usage, ...usage };
    return this;
  }

  /** An uninitialised quantized tensor for `shape`; see `emptyQuantized` for what it refuses. */
  makeEmpty(backend: Backend, shape: Shape, dtype: WideDType = "bf16"): QuantizedTensor {
    const { spec, usage } = this;
    const layout: QuantizedLayout = {
      spec,
      usage,
      scaleLayout: this.options.scaleLayout ?? "logical",
      ops: this,
    };
    return emptyQuantized(backend, shape, dtype, layout);
  }

  /** The quantized form of `x` (f32, bf16 or f16; any leading dimensions). */
  quantize(x: Tensor): QuantizedTensor {
    const source = requireWide("quantize", "x", x);
    const scope = new Scope();
    try {
      const target = this.makeEmpty(x.backend, x.shape, source.dtype);
      this.updateQuantized(source, target);
      return scope.keep(target);
    } finally {
      scope.dispose();
    }
  }

  /**
   * The quantized form of an activation of `x`, of its gated form or, given the gradient of that, of the gradient of
   * `x`: one pass where the backend has one. Per-tensor FP8 casts the f32 values; the others see them rounded to the type of
   * `x`, or of the gradient (numerics.md §7.3).
   */
  quantizeActivation(x: Tensor, options: QuantizeActivationOptions): QuantizedTensor {
    using scope = new Scope();
    const { shape, dtype } = activationResult(x, options);
    const target = this.makeEmpty(x.backend, shape, dtype);
    activationQuantize(x, target, options, this.inputs());
    return scope.keep(target);
  }

  /**
   * The quantized form of the norm of the rows of `x`, with the statistics for `normBackward`: one pass where the backend
   * has one. Per-tensor FP8 under a scale given casts the f32 values; the others see them rounded to the type of `x`
   * (numerics.md §7.3).
   */
  quantizeNorm(x: Tensor, norm: NormParameters): QuantizedNorm {
    using scope = new Scope();
    const target = this.makeEmpty(x.backend, x.shape, requireWide("quantizeNorm", "x", x).dtype);
    const statistics = normQuantize(x, target, norm, this.inputs());
    return { out: scope.keep(target), ...keptStatistics(scope, statistics) };
  }

  /** Quantizes `source` into `target`. Throws `ArgumentError` unless a quantizer of the same spec made that. */
  updateQuantized(source: Tensor, target: QuantizedTensor, call: QuantizeCall = {}): void {
    if (target.spec !== this.spec) this.#requireOwnSpec(target);
    const inputs = this.inputs();
    quantizeInto(source, target, call.noop ? { ...inputs, noop: call.noop } : inputs);
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

  dequantize(t: QuantizedTensor, dtype: WideDType): Tensor<WideDType> {
    return dequantize(t, dtype);
  }

  /** The columnwise copy that follows from the rowwise one: where one scale covers a square, or everything. */
  deriveColumnwise(t: QuantizedTensor): QuantizedCopy {
    const { quantizer, tile } = t.spec;
    if (tile === "tensor" || tile === "128x128") return transposeCopy(t);
    throw new ArgumentError(
      `the columnwise copy of a ${quantizer} ${tile} tensor does not follow from its rowwise one; quantize the source with columnwise usage`,
    );
  }
}

/** A run's random words: each quantization takes one offset, in program order. */
export class RandomState {
  constructor(
    public seed: bigint,
    public offset = 0n,
  ) {
    requireBigInt("seed", seed);
    requireBigInt("offset", offset);
  }

  next(): RandomSource {
    return { seed: this.seed, offset: this.offset++ };
  }
}
