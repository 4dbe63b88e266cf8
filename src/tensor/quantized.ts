/**
 * The quantized tensor: codes and scales of a matrix in one or two copies, rowwise and columnwise, and the settings they were
 * quantized with.
 */
import { guardReceivers, inherits, unwrapHint } from "../brand.js";
import { ArgumentError, DTypeError, ShapeError } from "../errors.js";
import type { BlockFormatName, Tile } from "../formats/block.js";
import type { ElementScalingName } from "../formats/element-scalings.js";
import type { ScalarFormat } from "../formats/scalar.js";
import type { ScaleRuleName } from "../formats/scale-rules.js";
import { boolean, describe, optionsOf } from "../options.js";
import type { CopyGeometry } from "./geometry.js";
import { madeFields, quantizerOps, requireSpecOf } from "./quantized-fields.js";
import { requireScalar, requireTensor, requireWide, requireWords, wideDType } from "./require.js";
import { adoptBeside, OWNER, type Scope } from "./scope.js";
import { asMatrix, type DType, ownShape, type Shape, type WideDType } from "./shape.js";
import { backendName, firstValues, INSPECT } from "./show.js";
import type { FOUR_OVER_SIX, SCALE_LAYOUTS } from "./spec.js";
import { isTensor, type Tensor } from "./tensor.js";

/**
 * Which copies of a quantized [M, K] matrix exist. The rowwise copy has its scale blocks along K, the columnwise copy along M.
 */
export interface Usage {
  /** Whether the rowwise copy exists, with scale blocks along K. */
  readonly rowwise: boolean;
  /** Whether the columnwise copy exists, with scale blocks along M. */
  readonly columnwise: boolean;
}

export const ROWWISE: Usage = { rowwise: true, columnwise: false };
export const COLUMNWISE: Usage = { rowwise: false, columnwise: true };

/** The names of the two copies, in the order in which they are stored in memory and in files. */
export const DIRECTIONS = ["rowwise", "columnwise"] as const satisfies readonly (keyof Usage)[];
/** The name of one of the two copies of a quantized tensor. */
export type Direction = (typeof DIRECTIONS)[number];

/**
 * How scales are stored. `logical`: without padding. `padded`: with the padding that GEMM libraries require, not swizzled.
 * `swizzled`: padded and in the 128x4 tile order that cuBLAS reads (MX and NVFP4 only).
 */
export type ScaleLayout = (typeof SCALE_LAYOUTS)[number];

/**
 * The error measure by which 4over6 chooses between two scales for each block: mean absolute or mean squared. `none`: 4over6 is
 * off.
 */
export type FourOverSix = (typeof FOUR_OVER_SIX)[number];

/** All settings that determine the bits of a quantized tensor, except random bits. */
export interface QuantizeSpec {
  /** The scaling strategy: a key of `BLOCK_FORMATS`. */
  readonly quantizer: BlockFormatName;
  /** The element format. */
  readonly format: ScalarFormat;
  /** The region of elements that share a scale. */
  readonly tile: Tile;
  /** The rule by which an amax becomes a scale: one of the rules in the quantizer's row of `BLOCK_FORMATS`. */
  readonly scaleRule: ScaleRuleName;
  /** How elements are scaled to the range of their format: one of the element scalings in the rule's row of `SCALE_RULES`. */
  readonly elementScaling: ElementScalingName;
  /** Whether f32 scales are rounded down to powers of two. */
  readonly pow2Scales: boolean;
  /** A lower bound of the amax from which an f32 scale is computed. */
  readonly amaxEpsilon: number;
  /** An upper bound of the amax from which the scale of a row is computed (fp8-row); 0 for no bound. */
  readonly amaxLimit: number;
  /** Whether columnwise data pass through the random Hadamard transform before quantization (NVFP4). */
  readonly rht: boolean;
  /** The signs of the transform: if bit i is set, element i of each group of 16 is negated before the transform. */
  readonly rhtSigns: number;
  /** Whether elements are rounded stochastically (MX and NVFP4). */
  readonly stochastic: boolean;
  /** The error measure by which 4over6 chooses between two scales for each block (NVFP4), or `none`. */
  readonly fourOverSix: FourOverSix;
  /** The maximum of the block scales of NVFP4: 448, or 256 with 4over6. */
  readonly e4m3Max: 448 | 256;
  /**
   * Whether columnwise data and scales keep the order of the input instead of being transposed (data layout COMPACT). Only for
   * fp8-block with tile 1x128.
   */
  readonly compact: boolean;
  /**
   * Whether amaxes are per line instead of per tensor (NVFP4): one for each row in the rowwise copy, one for each
   * column in the columnwise one.
   */
  readonly rowScaled: boolean;
}

/** The tensors of one copy. */
export interface CopyTensors {
  /** The codes, in the element format of the spec. In a columnwise copy they are transposed if the format stores them so. */
  readonly data: Tensor;
  /** The scales: value = code * scale. They are stored in the tensor's `scaleLayout`. */
  readonly scaleInv: Tensor;
  /**
   * For NVFP4: the amax of the whole tensor, f32 [1]. With the random Hadamard transform, the columnwise copy has the amax of
   * the transformed data. Under a scale rule other than twoLevel it is the scale of the tensor (numerics.md §5.11). With
   * `rowScaled` it has an amax for each row of the matrix, [M], and in the columnwise copy for each column, [K] (§5.9).
   */
  readonly amax?: Tensor<"f32">;
}

/** One copy: its tensors and their memory layout. */
export interface QuantizedCopy extends CopyTensors {
  /** The memory layout of codes and scales. It follows from the spec, shape, direction and scale layout. */
  readonly geometry: CopyGeometry;
}

/**
 * Random bits for one stochastic quantization, which replace the bits of the quantizer's random state. Each is a u32 tensor of
 * one word for each element of a copy, in the order of its codes (numerics.md, choice 6). Every copy that is created needs random
 * bits. The random state does not advance.
 */
export interface GivenRandomBits {
  /** The random bits of the rowwise copy, in the order of x. */
  readonly randomBits?: Tensor<"u32"> | undefined;
  /**
   * The random bits of the columnwise copy, in the order of its codes: transposed if they are, and including the rows that fill
   * the last blocks.
   */
  readonly randomBitsColumnwise?: Tensor<"u32"> | undefined;
}

/** Options of one quantization. All fields are optional. */
export interface QuantizeCall extends GivenRandomBits {
  /** An f32 [1] flag, read on the device. If it is exactly 1, the target is not changed. */
  readonly noop?: Tensor<"f32"> | undefined;
}

/** The methods of a quantizer that a quantized tensor calls. */
export interface QuantizerOps {
  /** Returns the values of `t`, rounded once to `dtype`. */
  dequantize(t: QuantizedTensor, dtype: WideDType): Tensor<WideDType>;
  /** Quantizes `source` into `t`. Both have the same shape. */
  updateQuantized(source: Tensor<WideDType>, t: QuantizedTensor, call?: QuantizeCall): void;
  /** Derives the columnwise copy from the rowwise one. Throws `ArgumentError` if that is not possible for the format. */
  deriveColumnwise(t: QuantizedTensor): QuantizedCopy;
}

/** The fields of a `QuantizedTensor`: codes and scales of one matrix, and the quantizer that made them. */
export interface QuantizedTensorFields {
  /** The settings with which codes and scales were computed. */
  readonly spec: QuantizeSpec;
  /** The shape of the tensor that was quantized. Copies flatten its leading dimensions. */
  readonly shape: Shape;
  /** The nominal dtype: the dtype of the tensor that was quantized. */
  readonly dtype: WideDType;
  /** How the scales of both copies are stored. */
  readonly scaleLayout: ScaleLayout;
  /** The copy with scale blocks along K. At least one copy is required. */
  readonly rowwise?: CopyTensors | undefined;
  /** The copy with scale blocks along M. */
  readonly columnwise?: CopyTensors | undefined;
  /** The quantizer that made the codes and scales. */
  readonly ops: QuantizerOps;
}

/** The fields of a quantized tensor, with the geometry of each copy. */
export interface MadeFields extends QuantizedTensorFields {
  readonly rowwise?: QuantizedCopy | undefined;
  readonly columnwise?: QuantizedCopy | undefined;
}

/** Checks a change of usage. A copy that it does not name is unchanged. */
export const checkUsage = optionsOf<Partial<Usage>>({ rowwise: boolean, columnwise: boolean }, "usage");
const RANDOM_BITS = { randomBits: requireWords, randomBitsColumnwise: requireWords } as const;
export const checkCall = optionsOf<QuantizeCall>({ noop: requireScalar, ...RANDOM_BITS }, "call");
export const checkRandomBits = optionsOf<GivenRandomBits>(RANDOM_BITS, "call");

/** The fields of the tensor under construction, if they were already checked; else undefined. */
let trusted: MadeFields | undefined;

/**
 * Whether `x` is a quantized tensor, and not a proxy of one or another object with its prototype. It is faster than
 * `instanceof`.
 */
export let isQuantized: (x: unknown) => x is QuantizedTensor;

/** Creates a quantized tensor without checking that the fields match each other. */
export function trustedQuantized(fields: MadeFields): QuantizedTensor {
  trusted = fields;
  try {
    return new QuantizedTensor(fields);
  } finally {
    trusted = undefined;
  }
}

/**
 * Codes and scales that represent a tensor of `shape` and of nominal type `dtype`.
 *
 * @throws `DisposedError` for a disposed tensor.
 */
export class QuantizedTensor {
  /** The settings with which codes and scales were computed. */
  readonly spec: QuantizeSpec;
  /** The shape of the tensor that was quantized. Frozen. */
  readonly shape: Shape;
  /** The nominal dtype: the dtype of the tensor that was quantized. It is the default dtype of the result of `dequantize`. */
  readonly dtype: WideDType;
  /** How the scales of both copies are stored. */
  readonly scaleLayout: ScaleLayout;
  #owner: Scope | undefined;
  #ops: QuantizerOps;
  #rowwise: QuantizedCopy | undefined;
  #columnwise: QuantizedCopy | undefined;

  /** Throws `ArgumentError`, `DTypeError` or `ShapeError` for fields that do not match each other. */
  constructor(fields: QuantizedTensorFields) {
    if (new.target !== QuantizedTensor)
      throw new ArgumentError(
        "QuantizedTensor: the class cannot be extended; keep a quantized tensor in a field",
      );
    const checked = trusted ?? madeFields(fields);
    trusted = undefined;
    this.spec = checked.spec;
    this.shape = checked.shape;
    this.dtype = checked.dtype;
    this.scaleLayout = checked.scaleLayout;
    this.#rowwise = checked.rowwise && Object.freeze(checked.rowwise);
    this.#columnwise = checked.columnwise && Object.freeze(checked.columnwise);
    this.#ops = checked.ops;
    // operations read memory by these fields
    Object.freeze(this);
  }

  static {
    isQuantized = (x): x is QuantizedTensor => typeof x === "object" && x !== null && #ops in x;
    guardReceivers(this, isQuantized);
  }

  /** @internal Whether `x` is a quantized tensor, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isQuantized(x) && inherits(this, x);
  }

  /** @internal The scope that owns it, if a program has given it to one. */
  get [OWNER](): Scope | undefined {
    return this.#owner;
  }

  /** @internal Sets the scope that owns it. */
  set [OWNER](scope: Scope | undefined) {
    this.#owner = scope;
  }

  /** The copy with scale blocks along K. Undefined if it was not made or was dropped. */
  get rowwise(): QuantizedCopy | undefined {
    return this.#rowwise;
  }

  /** The copy with scale blocks along M. Undefined if it was not made or was dropped. */
  get columnwise(): QuantizedCopy | undefined {
    return this.#columnwise;
  }

  /** @internal The quantizer that its methods use. */
  get quantizer(): QuantizerOps {
    return this.#ops;
  }

  /** Whether each copy exists. */
  get usage(): Usage {
    return { rowwise: this.#rowwise !== undefined, columnwise: this.#columnwise !== undefined };
  }

  /** The tensors of all copies. */
  get members(): readonly Tensor[] {
    const rowwise = this.#rowwise ? membersOf(this.#rowwise) : [];
    return this.#columnwise ? [...rowwise, ...membersOf(this.#columnwise)] : rowwise;
  }

  /** The backend of its tensors. Throws `ArgumentError` if both copies were dropped. */
  get backend(): Tensor["backend"] {
    const [first] = this.members;
    if (!first) throw new ArgumentError("a quantized tensor without a copy has no backend");
    return first.backend;
  }

  /**
   * Returns the copy of that direction. Throws `ArgumentError` if it was not made or was dropped, or for an unknown direction.
   */
  copy(direction: Direction): QuantizedCopy {
    if (!DIRECTIONS.includes(direction))
      throw new ArgumentError(`copy: direction is ${describe(direction)}; it must be rowwise or columnwise`);
    const copy = direction === "rowwise" ? this.#rowwise : this.#columnwise;
    if (copy) return copy;
    throw new ArgumentError(
      `the ${direction} copy of this ${this.spec.quantizer} tensor is needed and not there; quantize with ${direction} usage`,
    );
  }

  /**
   * Returns the values, rounded once to `dtype`. They are computed from the rowwise copy if it exists, else from the columnwise
   * one.
   *
   * @throws `ArgumentError` for a dtype other than f32, bf16 and f16, `DisposedError` for a disposed tensor.
   */
  dequantize(dtype: WideDType = this.dtype): Tensor<WideDType> {
    requireQuantized("dequantize", "this tensor", this);
    wideDType("dequantize", "dtype", dtype);
    return this.#ops.dequantize(this, dtype);
  }

  /**
   * Replaces the quantizer that the methods of this tensor use. The new quantizer must have the same spec; its scale tensors may
   * differ.
   *
   * @throws `ArgumentError` for an object that is not a quantizer, or for a quantizer with another spec.
   */
  updateQuantizer(ops: QuantizerOps): void {
    quantizerOps("updateQuantizer", "ops", ops);
    requireSpecOf("updateQuantizer", ops, this.spec);
    this.#ops = ops;
  }

  /**
   * Quantizes `source` into this tensor, by its quantizer.
   *
   * @throws `DTypeError` for a source that is not f32, bf16 or f16, `ShapeError` for a source of another shape, `ArgumentError`
   * for a source on another backend or an unknown option, `DisposedError` for a disposed tensor.
   */
  quantize_(source: Tensor<WideDType>, call: QuantizeCall = {}): this {
    requireQuantized("quantize_", "this tensor", this);
    requireWide("quantize_", "source", source);
    this.#ops.updateQuantized(source, this, checkCall("quantize_", call));
    return this;
  }

  /**
   * Drops or adds copies: a field that is false drops its copy, a field that is true requires it. A missing columnwise copy is
   * derived from the rowwise one, with the bits that quantizing the source would give, if scales are per tensor or per square
   * tile and elements were rounded to nearest, without 4over6. Under `twoLevelQuotient`, `twoLevelProduct` and
   * `twoLevelDivisor` (numerics.md §5.11), the rows must fill the tiles.
   *
   * @throws `ArgumentError` for a missing copy that cannot be derived.
   * @throws `DisposedError` for a disposed tensor.
   */
  updateUsage(usage: Partial<Usage>): this {
    requireQuantized("updateUsage", "this tensor", this);
    const ownUsage = checkUsage("updateUsage", usage);
    if (ownUsage.rowwise) this.copy("rowwise");
    if (ownUsage.columnwise && !this.#columnwise) this.#columnwise = this.#derive();
    if (ownUsage.rowwise === false && this.#rowwise) {
      disposeCopy(this.#rowwise);
      this.#rowwise = undefined;
    }
    if (ownUsage.columnwise === false && this.#columnwise) {
      disposeCopy(this.#columnwise);
      this.#columnwise = undefined;
    }
    return this;
  }

  /** Derives the columnwise copy from the rowwise one. The scope that owns the rowwise copy owns the result too. */
  #derive(): QuantizedCopy {
    const copy = this.#ops.deriveColumnwise(this);
    for (const member of membersOf(copy)) adoptBeside(member, this.copy("rowwise").data);
    return copy;
  }

  /**
   * Returns a new quantized tensor that shares the memory of this one. Both must be disposed of.
   *
   * @throws `DisposedError` for a disposed tensor.
   */
  share(): QuantizedTensor {
    requireQuantized("share", "this tensor", this);
    return this.#like(this.shape, (member) => member.reshape(member.shape));
  }

  /**
   * Returns a quantized tensor of another shape with the same last dimension and as many elements, which shares the memory of
   * this one: copies flatten the leading dimensions. Both must be disposed of.
   *
   * @throws `ShapeError` for a shape with another last dimension or another number of elements, because blocks of scales lie
   * along rows and columns, `DisposedError` for a disposed tensor.
   */
  reshape(shape: Shape): QuantizedTensor {
    requireQuantized("reshape", "this tensor", this);
    const target = ownShape(shape);
    const [[rows, columns], [newRows, newColumns]] = [asMatrix(this.shape), asMatrix(target)];
    if (rows !== newRows || columns !== newColumns)
      throw new ShapeError(
        `reshape: [${target}] has rows of other elements than [${this.shape}], and scales belong to blocks of a row or column; keep the last dimension, or dequantize first`,
      );
    return this.#like(target, (member) => member.reshape(member.shape));
  }

  /**
   * Returns a copy in new memory, with the same codes and scales.
   *
   * @throws `DisposedError` for a disposed tensor.
   */
  clone(): QuantizedTensor {
    requireQuantized("clone", "this tensor", this);
    return this.#like(this.shape, (member) => member.clone());
  }

  /**
   * Returns a quantized tensor of `shape` with the matrix of this one. `convert` maps each tensor of this one to a tensor of the
   * result.
   */
  #like(shape: Shape, convert: <D extends DType>(member: Tensor<D>) => Tensor<D>): QuantizedTensor {
    const [rowwise, columnwise] = [this.#rowwise, this.#columnwise].map(
      (copy) => copy && copyLike(copy, convert),
    );
    const { spec, dtype, scaleLayout } = this;
    return trustedQuantized({ spec, shape, dtype, scaleLayout, ops: this.#ops, rowwise, columnwise });
  }

  /** Releases both copies. A second call does nothing. */
  dispose(): void {
    for (const member of this.members) member.dispose();
  }

  /** Calls `dispose` at the end of a `using` declaration's block. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  /**
   * Returns a readable description: quantizer, format, tile, shape, backend, and the first eight codes (as values) and scales
   * of each copy. It waits for the work enqueued before and never throws.
   */
  toString(): string {
    return showQuantized(this);
  }

  /** Returns `toString()`, which `console.log` prints in Node. */
  [INSPECT](): string {
    return showQuantized(this);
  }
}

function showQuantized(x: QuantizedTensor): string {
  const { quantizer, format, tile } = x.spec;
  const [first] = x.members;
  const actual = `${x.dtype} [${x.shape.join(", ")}]${first ? ` ${backendName(first)}` : ""}`;
  const lines = [`QuantizedTensor(${quantizer} ${format} ${tile}, ${actual}, scales ${x.scaleLayout})`];
  for (const direction of DIRECTIONS) {
    const copy = x[direction];
    if (!copy) continue;
    const parts = [
      `  ${direction}: codes ${firstValues(copy.data)}`,
      `scaleInv ${firstValues(copy.scaleInv)}`,
    ];
    if (copy.amax) parts.push(`amax ${firstValues(copy.amax)}`);
    lines.push(parts.join(", "));
  }
  if (!first) lines.push("  no copy");
  return lines.join("\n");
}

/**
 * Returns `x` if it is a quantized tensor whose memory exists. Throws `DTypeError` if it is not a quantized tensor,
 * `DisposedError` if it is disposed.
 */
export function requireQuantized(op: string, name: string, x: unknown): QuantizedTensor {
  if (!isQuantized(x)) {
    const actual = isTensor(x) ? `a ${x.dtype} tensor` : describe(x);
    throw new DTypeError(
      `${op}: ${name} is ${actual}; it must be a quantized tensor${unwrapHint(QuantizedTensor, x)}`,
    );
  }
  for (const member of x.members) requireTensor(op, name, member);
  return x;
}

function membersOf(copy: CopyTensors): Tensor[] {
  return copy.amax ? [copy.data, copy.scaleInv, copy.amax] : [copy.data, copy.scaleInv];
}

function copyLike(
  { data, scaleInv, amax, geometry }: QuantizedCopy,
  convert: <D extends DType>(member: Tensor<D>) => Tensor<D>,
): QuantizedCopy {
  const tensors = { data: convert(data), scaleInv: convert(scaleInv), geometry };
  return amax ? { ...tensors, amax: convert(amax) } : tensors;
}

function disposeCopy(copy: QuantizedCopy): void {
  for (const member of membersOf(copy)) member.dispose();
}
