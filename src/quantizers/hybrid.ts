/** Quantizers of a tensor's two copies separately, and the quantizer that keeps high precision. */
import { guardReceivers, inherits, isObject } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { castTo } from "../ops/cast/cast.js";
import { dequantize } from "../ops/quantize/dequantize.js";
import { type Domain, describe, needed, oneOf, optionsOf } from "../options.js";
import { checkUsage, QuantizedTensor, type Usage } from "../tensor/quantized.js";
import { requireWide, wideDType } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { FakeQuantizer } from "./fake.js";
import { Quantizer } from "./quantizer.js";

/**
 * Keeps a tensor in high precision. A custom recipe returns one, or null, for a tensor that is not to be quantized; in a
 * `HybridQuantizer` it keeps one of the two copies.
 */
export class IdentityQuantizer {
  static {
    guardReceivers(this);
  }

  readonly #isIdentity = true;

  /** @internal Whether `x` is an identity quantizer, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #isIdentity in x && inherits(this, x);
  }

  /**
   * Returns a tensor that shares the memory of `x`. Both must be disposed of.
   *
   * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `DisposedError` for a disposed tensor.
   */
  quantize(x: Tensor): Tensor<WideDType> {
    const values = requireWide("quantize", "x", x);
    return values.reshape(values.shape);
  }
}

/** A quantizer of one copy of a tensor. */
export type CopyQuantizer = Quantizer | FakeQuantizer | IdentityQuantizer;

/** The source of the columnwise copy of a `HybridQuantizer`: the values of the tensor, or the values of the rowwise copy. */
export type ColumnwiseSource = (typeof COLUMNWISE_SOURCES)[number];
const COLUMNWISE_SOURCES = ["original", "rowwiseDequantized"] as const;

/** Options of `HybridQuantizer`. */
export interface HybridQuantizerOptions {
  /** Makes the rowwise copy. Its usage is set at each call, so no other quantizer may use it. */
  readonly rowwiseQuantizer: CopyQuantizer;
  /** Makes the columnwise copy. It must be a different object than `rowwiseQuantizer`. */
  readonly columnwiseQuantizer: CopyQuantizer;
  /**
   * The source of the columnwise copy: `original`, the tensor, or `rowwiseDequantized`, the values of the rowwise copy rounded to
   * the dtype of the tensor. Default `original`.
   */
  readonly columnwiseSource?: ColumnwiseSource | undefined;
}

/** Checks an option that is the quantizer of one copy. */
const copyQuantizer: Domain = (caller, name, value) => {
  if (value instanceof Quantizer || value instanceof FakeQuantizer || value instanceof IdentityQuantizer)
    return value;
  throw new ArgumentError(
    `${caller}: ${name} is ${describe(value)}; it must be a quantizer, such as new MXFP8Quantizer(), or new IdentityQuantizer()`,
  );
};

const checkOptions = optionsOf<HybridQuantizerOptions>({
  rowwiseQuantizer: needed(copyQuantizer),
  columnwiseQuantizer: needed(copyQuantizer),
  columnwiseSource: oneOf(COLUMNWISE_SOURCES),
});

/** The copies of a tensor that a `HybridQuantizer` has made. */
export interface HybridQuantizedTensor {
  /** The shape of the tensor. */
  readonly shape: Shape;
  /** The dtype of the tensor. */
  readonly dtype: WideDType;
  /** The rowwise copy: a quantized tensor that has only this copy, or a tensor in high precision. */
  readonly rowwise: QuantizedTensor | Tensor<WideDType> | undefined;
  /** The columnwise copy: a quantized tensor that has only this copy, or a tensor in high precision. */
  readonly columnwise: QuantizedTensor | Tensor<WideDType> | undefined;
  /** Returns the values of the rowwise copy if it exists, else of the columnwise one, rounded to `dtype`. */
  dequantize(dtype?: WideDType): Tensor<WideDType>;
  /** Frees both copies. A second call does nothing. */
  dispose(): void;
  /** Calls `dispose` at the end of a `using` declaration's block. */
  [Symbol.dispose](): void;
}

/**
 * Makes the two copies of a tensor by different quantizers. It is for `CustomRecipe`, whose products read one copy of each
 * operand. It has no spec, because its copies have two.
 *
 * @throws `ArgumentError` for an unknown option or an invalid option value, and if both quantizers are the same object.
 */
export class HybridQuantizer {
  static {
    guardReceivers(this);
  }

  /** Makes the rowwise copy. */
  readonly rowwiseQuantizer: CopyQuantizer;
  /** Makes the columnwise copy. */
  readonly columnwiseQuantizer: CopyQuantizer;
  /** The source of the columnwise copy. */
  readonly columnwiseSource: ColumnwiseSource;
  #usage: Usage = { rowwise: true, columnwise: true };

  /** @internal Whether `x` is a hybrid quantizer, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #usage in x && inherits(this, x);
  }

  constructor(options: HybridQuantizerOptions) {
    const ownOptions = checkOptions("HybridQuantizer", options);
    this.rowwiseQuantizer = ownOptions.rowwiseQuantizer;
    this.columnwiseQuantizer = ownOptions.columnwiseQuantizer;
    this.columnwiseSource = ownOptions.columnwiseSource ?? "original";
    if (this.rowwiseQuantizer === this.columnwiseQuantizer)
      throw new ArgumentError(
        "HybridQuantizer: rowwiseQuantizer and columnwiseQuantizer are one object, and each makes another copy; give two",
      );
    Object.freeze(this);
  }

  /** The copies that `quantize` makes. */
  get usage(): Usage {
    return this.#usage;
  }

  /**
   * Changes the copies that later calls make. Returns this quantizer.
   *
   * @throws `ArgumentError` for a value that is not a boolean.
   */
  setUsage(usage: Partial<Usage>): this {
    const { rowwise = this.#usage.rowwise, columnwise = this.#usage.columnwise } = checkUsage(
      "setUsage",
      usage,
    );
    this.#usage = { rowwise, columnwise };
    return this;
  }

  /**
   * Makes the copies of `usage`. The caller disposes of the result, or a scope does.
   *
   * @throws `DTypeError`, `ShapeError`, `ArgumentError` and `DisposedError` as the `quantize` of both quantizers does.
   */
  quantize(x: Tensor): HybridQuantizedTensor {
    using scope = new Scope();
    const { dtype, shape } = requireWide("quantize", "x", x);
    const { rowwise: wantsRowwise, columnwise: wantsColumnwise } = this.#usage;
    const readsRowwise = wantsColumnwise && this.columnwiseSource === "rowwiseDequantized";
    const rowwise =
      wantsRowwise || readsRowwise ? quantizedCopy(this.rowwiseQuantizer, x, "rowwise") : undefined;
    const source = rowwise && readsRowwise ? wideValues(rowwise, dtype) : x;
    const columnwise = wantsColumnwise
      ? quantizedCopy(this.columnwiseQuantizer, source, "columnwise")
      : undefined;
    return hybridTensor(
      { shape, dtype },
      rowwise && wantsRowwise ? scope.keep(rowwise) : undefined,
      columnwise && scope.keep(columnwise),
    );
  }
}

/** Makes one copy of `x`. */
function quantizedCopy(
  quantizer: CopyQuantizer,
  x: Tensor,
  direction: keyof Usage,
): QuantizedTensor | Tensor<WideDType> {
  if (quantizer instanceof IdentityQuantizer) return quantizer.quantize(x);
  const rowwise = direction === "rowwise";
  const usage = { rowwise, columnwise: !rowwise };
  if (quantizer instanceof Quantizer) return quantizer.setUsage(usage).quantize(x);
  return dequantize(quantizer.quantizer.setUsage(usage).quantize(x), requireWide("quantize", "x", x).dtype);
}

/** The values of a copy in `dtype`: a new tensor if they are quantized. */
function wideValues(copy: QuantizedTensor | Tensor<WideDType>, dtype: WideDType): Tensor<WideDType> {
  return copy instanceof QuantizedTensor ? dequantize(copy, dtype) : copy;
}

function hybridTensor(
  { shape, dtype }: { readonly shape: Shape; readonly dtype: WideDType },
  rowwise: QuantizedTensor | Tensor<WideDType> | undefined,
  columnwise: QuantizedTensor | Tensor<WideDType> | undefined,
): HybridQuantizedTensor {
  const dispose = (): void => {
    rowwise?.dispose();
    columnwise?.dispose();
  };
  return Object.freeze({
    ...{ shape, dtype, rowwise, columnwise, dispose },
    dequantize(target: WideDType = dtype): Tensor<WideDType> {
      wideDType("dequantize", "dtype", target);
      const copy = rowwise ?? columnwise;
      if (!copy)
        throw new ArgumentError(
          "dequantize: the tensor has no copy; quantize with rowwise or columnwise usage",
        );
      if (copy instanceof QuantizedTensor) return dequantize(copy, target);
      return copy.dtype === target ? copy.reshape(copy.shape) : castTo(copy, target);
    },
    [Symbol.dispose]: dispose,
  });
}
