/** A quantized tensor: codes and scales, rowwise, columnwise or both, and how they were made. */
import { ArgumentError, DTypeError } from "../errors.js";
import type { BlockFormatName, Tile } from "../formats/block.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { boolean, describe, optionsOf } from "../options.js";
import type { CopyGeometry } from "./geometry.js";
import { madeFields, quantizerOps } from "./quantized-fields.js";
import { requireScalar, requireTensor, requireWide, wideDType } from "./require.js";
import { adoptBeside } from "./scope.js";
import type { Shape, WideDType } from "./shape.js";
import { backendName, firstValues, INSPECT } from "./show.js";
import type { FOUR_OVER_SIX, SCALE_LAYOUTS } from "./spec.js";
import { Tensor } from "./tensor.js";

/** Which copies a quantized tensor has: scaling blocks along K (rowwise) or along M (columnwise). */
export interface Usage {
  /** The copy scaled along K. */
  readonly rowwise: boolean;
  /** The copy scaled along M. */
  readonly columnwise: boolean;
}

/** The directions of copies, in the order of memory and files. */
export const DIRECTIONS = ["rowwise", "columnwise"] as const satisfies readonly (keyof Usage)[];
/** One of the two copies of a quantized tensor. */
export type Direction = (typeof DIRECTIONS)[number];

/**
 * How scales lie in memory. `logical`: no padding, the shapes of the command line. `padded`: as the
 * GEMM libraries want them, before swizzling. `swizzled`: the 128x4 layout of cuBLAS (MX, NVFP4).
 */
export type ScaleLayout = (typeof SCALE_LAYOUTS)[number];

/** How 4over6 weighs the two candidate scales of a block, and whether it does at all. */
export type FourOverSix = (typeof FOUR_OVER_SIX)[number];

/** Everything that decides the bits of a quantized tensor, randomness aside. */
export interface QuantizeSpec {
  /** Which scaling strategy; a row of `BLOCK_FORMATS`. */
  readonly quantizer: BlockFormatName;
  /** The element format. */
  readonly format: ScalarFormat;
  /** The region that shares a scale. */
  readonly tile: Tile;
  /** f32 scales are cut to powers of two. */
  readonly pow2Scales: boolean;
  /** Lower bound of amax, for f32 scales. */
  readonly amaxEpsilon: number;
  /** Columnwise data pass through the random Hadamard transform first (NVFP4). */
  readonly rht: boolean;
  /** Bit i set: element i of each 16 is negated before the transform. */
  readonly rhtSigns: number;
  /** Elements are rounded stochastically (NVFP4). */
  readonly stochastic: boolean;
  /** How 4over6 weighs the two candidate scales of a block (NVFP4), or `none`. */
  readonly fourOverSix: FourOverSix;
  /** The largest block scale of NVFP4: 448, or 256 with 4over6. */
  readonly e4m3Max: 448 | 256;
  /** fp8-block 1x128 only: columnwise data and scales stay as the blocks lie in the input. */
  readonly compact: boolean;
}

/** What one copy is made of: codes, scales in `scaleLayout`, and NVFP4's per-tensor amax. */
export interface CopyTensors {
  /** The codes, of the spec's element format; transposed where the format's columnwise copy is. */
  readonly data: Tensor;
  /** The scales, by which codes are multiplied. */
  readonly scaleInv: Tensor;
  /** NVFP4: the amax of the whole tensor, after the transform where there is one, f32 [1]. */
  readonly amax?: Tensor<"f32">;
}

/** One copy, and where its codes and scales lie. */
export interface QuantizedCopy extends CopyTensors {
  /** Where codes and scales lie, which follows from spec, shape, direction and layout. */
  readonly geometry: CopyGeometry;
}

/** Options of one quantization. */
export interface QuantizeCall {
  /** Leaves the target as it is where this f32 [1] tensor holds exactly 1. */
  readonly noop?: Tensor<"f32"> | undefined;
}

/** What a quantized tensor asks of the quantizer that made it. */
export interface QuantizerOps {
  /** The values of `t`, rounded once to `dtype`. */
  dequantize(t: QuantizedTensor, dtype: WideDType): Tensor<WideDType>;
  /** Quantizes `source` into `t`, which has its shape. */
  updateQuantized(source: Tensor<WideDType>, t: QuantizedTensor, call?: QuantizeCall): void;
  /** The columnwise copy where it follows from the rowwise one. Throws `ArgumentError` where it does not. */
  deriveColumnwise(t: QuantizedTensor): QuantizedCopy;
}

/** What a `QuantizedTensor` is made of: codes and scales of one matrix, and the quantizer that made them. */
export interface QuantizedTensorFields {
  /** How codes and scales were made. */
  readonly spec: QuantizeSpec;
  /** The shape of the wide tensor; leading dimensions are flattened in copies. */
  readonly shape: Shape;
  /** The type that it was quantized from, nominally. */
  readonly dtype: WideDType;
  /** How the scales of both copies lie. */
  readonly scaleLayout: ScaleLayout;
  /** The copy scaled along K. One copy at least is needed. */
  readonly rowwise?: CopyTensors | undefined;
  /** The copy scaled along M. */
  readonly columnwise?: CopyTensors | undefined;
  /** The quantizer that made it. */
  readonly ops: QuantizerOps;
}

/** Fields that belong together: a frozen shape, and copies that know where they lie. */
export interface MadeFields extends QuantizedTensorFields {
  readonly rowwise?: QuantizedCopy | undefined;
  readonly columnwise?: QuantizedCopy | undefined;
}

/** Of a quantizer or of a tensor it made: either may be left as it is. */
export const checkUsage = optionsOf<Partial<Usage>>({ rowwise: boolean, columnwise: boolean });
export const checkCall = optionsOf<QuantizeCall>({ noop: requireScalar });

/** The fields of the tensor being made, where they are known to belong together. */
let trusted: MadeFields | undefined;

/** A quantized tensor of codes and scales that were made for each other. */
export function trustedQuantized(fields: MadeFields): QuantizedTensor {
  trusted = fields;
  try {
    return new QuantizedTensor(fields);
  } finally {
    trusted = undefined;
  }
}

/**
 * Codes and scales that stand for a wide tensor of `shape` and nominal `dtype`.
 *
 * @throws `DisposedError` for a tensor that was disposed of.
 */
export class QuantizedTensor {
  /** How codes and scales were made. */
  readonly spec: QuantizeSpec;
  /** The shape of the wide tensor, frozen. */
  readonly shape: Shape;
  /** The type that it was quantized from, which `dequantize` gives unless told otherwise. */
  readonly dtype: WideDType;
  /** How the scales of both copies lie. */
  readonly scaleLayout: ScaleLayout;
  #ops: QuantizerOps;
  #rowwise: QuantizedCopy | undefined;
  #columnwise: QuantizedCopy | undefined;

  /** Throws `ArgumentError`, `DTypeError` or `ShapeError` for fields that do not belong together. */
  constructor(fields: QuantizedTensorFields) {
    const made = trusted ?? madeFields(fields);
    this.spec = made.spec;
    this.shape = made.shape;
    this.dtype = made.dtype;
    this.scaleLayout = made.scaleLayout;
    this.#rowwise = made.rowwise;
    this.#columnwise = made.columnwise;
    this.#ops = made.ops;
  }

  /** The copy scaled along K. Undefined where it was not made or has been dropped. */
  get rowwise(): QuantizedCopy | undefined {
    return this.#rowwise;
  }

  /** The copy scaled along M. Undefined where it was not made or has been dropped. */
  get columnwise(): QuantizedCopy | undefined {
    return this.#columnwise;
  }

  /** Which copies there are. */
  get usage(): Usage {
    return { rowwise: this.#rowwise !== undefined, columnwise: this.#columnwise !== undefined };
  }

  /** The tensors it is made of. */
  get members(): readonly Tensor[] {
    const rowwise = this.#rowwise ? membersOf(this.#rowwise) : [];
    return this.#columnwise ? [...rowwise, ...membersOf(this.#columnwise)] : rowwise;
  }

  /** Where it lives. Throws `ArgumentError` where both copies have been dropped. */
  get backend(): Tensor["backend"] {
    const [first] = this.members;
    if (!first) throw new ArgumentError("a quantized tensor without a copy has no backend");
    return first.backend;
  }

  /** The copy for that direction. Throws `ArgumentError` where it was not made or has been dropped. */
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
   * The values, from the rowwise copy where there is one. One rounding, to `dtype`.
   *
   * @throws `ArgumentError` for a type that is not wide, `DisposedError` for a tensor that was disposed of.
   */
  dequantize(dtype: WideDType = this.dtype): Tensor<WideDType> {
    requireQuantized("dequantize", "this tensor", this);
    wideDType("dequantize", "dtype", dtype);
    return this.#ops.dequantize(this, dtype);
  }

  /**
   * Another quantizer of the same spec takes the place of the one that made it: one with other scales.
   *
   * @throws `ArgumentError` for what is no quantizer.
   */
  updateQuantizer(ops: QuantizerOps): void {
    quantizerOps("updateQuantizer", "ops", ops);
    this.#ops = ops;
  }

  /**
   * Quantizes `source` into this tensor, with the quantizer that made it.
   *
   * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for a source of another shape,
   * `ArgumentError` for one on another backend or an unknown option, `DisposedError` for a tensor that was disposed of.
   */
  quantize_(source: Tensor<WideDType>, call: QuantizeCall = {}): this {
    requireQuantized("quantize_", "this tensor", this);
    requireWide("quantize_", "source", source);
    this.#ops.updateQuantized(source, this, checkCall("quantize_", call));
    return this;
  }

  /**
   * Drops copies that are no longer wanted, and derives a columnwise copy where it follows from the rowwise one (per-tensor
   * scaling and 128x128 blocks).
   *
   * @throws `ArgumentError` for a copy that only the source could give.
   * @throws `DisposedError` for a tensor that was disposed of.
   */
  updateUsage(usage: Partial<Usage>): this {
    requireQuantized("updateUsage", "this tensor", this);
    checkUsage("updateUsage", usage);
    if (usage.rowwise) this.copy("rowwise");
    if (usage.columnwise && !this.#columnwise) this.#columnwise = this.#derive();
    if (usage.rowwise === false && this.#rowwise) {
      disposeCopy(this.#rowwise);
      this.#rowwise = undefined;
    }
    if (usage.columnwise === false && this.#columnwise) {
      disposeCopy(this.#columnwise);
      this.#columnwise = undefined;
    }
    return this;
  }

  /** The columnwise copy that follows from the rowwise one, to live as long as that does. */
  #derive(): QuantizedCopy {
    const copy = this.#ops.deriveColumnwise(this);
    for (const member of membersOf(copy)) adoptBeside(member, this.copy("rowwise").data);
    return copy;
  }

  /**
   * The same codes and scales under handles of their own. Dispose of both.
   *
   * @throws `DisposedError` for a tensor that was disposed of.
   */
  share(): QuantizedTensor {
    requireQuantized("share", "this tensor", this);
    const [rowwise, columnwise] = [this.#rowwise, this.#columnwise].map((copy) => copy && shareCopy(copy));
    return trustedQuantized({ ...this, ops: this.#ops, rowwise, columnwise });
  }

  /** Frees both copies. Safe to call twice. */
  dispose(): void {
    for (const member of this.members) member.dispose();
  }

  /** As `dispose`, for `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  /**
   * Quantizer, format, tile, shape, backend, and of each copy up to eight codes, as values, and scales, for people. Waits for
   * the work enqueued before; never throws.
   */
  toString(): string {
    return showQuantized(this);
  }

  /** What `console.log` prints in Node; as `toString`. */
  [INSPECT](): string {
    return showQuantized(this);
  }
}

function showQuantized(x: QuantizedTensor): string {
  const { quantizer, format, tile } = x.spec;
  const [first] = x.members;
  const made = `${x.dtype} [${x.shape.join(", ")}]${first ? ` ${backendName(first)}` : ""}`;
  const lines = [`QuantizedTensor(${quantizer} ${format} ${tile}, ${made}, scales ${x.scaleLayout})`];
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

/** `x` as a quantized tensor in use. Throws `DTypeError` for anything else, `DisposedError` for one whose memory is gone. */
export function requireQuantized(op: string, name: string, x: unknown): QuantizedTensor {
  if (!(x instanceof QuantizedTensor)) {
    const given = x instanceof Tensor ? `a ${x.dtype} tensor` : describe(x);
    throw new DTypeError(`${op}: ${name} is ${given}; it must be a quantized tensor`);
  }
  for (const member of x.members) requireTensor(op, name, member);
  return x;
}

function membersOf(copy: CopyTensors): Tensor[] {
  return copy.amax ? [copy.data, copy.scaleInv, copy.amax] : [copy.data, copy.scaleInv];
}

function shareCopy({ data, scaleInv, amax, geometry }: QuantizedCopy): QuantizedCopy {
  const shared = { data: data.reshape(data.shape), scaleInv: scaleInv.reshape(scaleInv.shape), geometry };
  return amax ? { ...shared, amax: amax.reshape(amax.shape) } : shared;
}

function disposeCopy(copy: QuantizedCopy): void {
  for (const member of membersOf(copy)) member.dispose();
}
