/**
 * Conversion of operands to lines along K, for every layout (numerics.md §6.1). A line of x or w is one of its rows: the
 * elements that are multiplied and summed for one row or column of the result.
 */
import type { GemmOperand } from "../../backends/ops/gemm.js";
import { ArgumentError, DTypeError, ShapeError, UnsupportedError } from "../../errors.js";
import {
  blockFormat,
  isLineWide,
  isTensorWide,
  scaleGrid,
  scaleSpan,
  type Tile,
  tileSize,
} from "../../formats/block.js";
import { isSigned } from "../../formats/derive.js";
import { hasPowersByRule, tensorScaleRole } from "../../formats/scale-rules.js";
import { anything, needed, oneOf, optionsOf } from "../../options.js";
import { copyGeometry } from "../../tensor/geometry.js";
import {
  type Direction,
  QuantizedTensor,
  type QuantizeSpec,
  requireQuantized,
} from "../../tensor/quantized.js";
import { requireF32, requireTensor } from "../../tensor/require.js";
import { asMatrix, type DType, storageBits } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { relayoutScales } from "../layout/layout.js";

/** FP8 codes [rows, K] that another program quantized, with f32 scales per tensor or per tile. */
export interface ScaledTensor {
  /** FP8 codes, [rows, K]. Leading dimensions are flattened into rows. */
  readonly data: Tensor;
  /** The f32 scales: value = code * scale. `tile` determines the shape. */
  readonly scaleInv: Tensor<"f32">;
  /**
   * The region that shares a scale. Default: the whole tensor, with `scaleInv` [1]. For 1xK, `scaleInv` is [rows, 1], or
   * [rows, 0] if K is 0; for 1x128, it is [rows, ceil(K/128)]; for 128x128, it is [ceil(rows/128), ceil(K/128)].
   */
  readonly tile?: (typeof SCALED_TILES)[number];
}

/** @shared The tiles that a `ScaledTensor` may have. */
export const SCALED_TILES = ["tensor", "1x128", "128x128", "1xK"] as const;

/** An operand of a product: unquantized values, a quantized tensor, or codes with separate scales. */
export type GemmInput = Tensor | QuantizedTensor | ScaledTensor;

const tileName = oneOf(SCALED_TILES);
const checkScaled = optionsOf<ScaledTensor>({
  data: needed(requireTensor),
  scaleInv: needed(requireTensor),
  tile: anything,
});

/**
 * @shared Checks an operand of a product and returns it. For a `ScaledTensor` it returns a copy of the caller's object, with the
 * same tensors. Throws `DTypeError`, `ArgumentError` or `DisposedError` for an operand that cannot be multiplied.
 */
export function requireInput(op: string, name: string, input: unknown): GemmInput {
  if (input instanceof QuantizedTensor) return requireQuantized(op, name, input);
  if (input instanceof Tensor || typeof input !== "object") return requireTensor(op, name, input);
  return checkScaled(op, input as ScaledTensor, name);
}

function isScaled(input: GemmInput): input is ScaledTensor {
  return "scaleInv" in input;
}

/** @shared Returns the tensors of an operand. */
export function tensorsOf(input: GemmInput): readonly Tensor[] {
  if (input instanceof QuantizedTensor) return input.members as readonly Tensor[];
  return isScaled(input) ? [input.data, input.scaleInv] : [input];
}

/** @shared Returns the rows and columns of an operand seen as a matrix. */
export function matrixOf(input: GemmInput): readonly [rows: number, columns: number] {
  return asMatrix(isScaled(input) ? input.data.shape : input.shape);
}

/** @shared */
export interface LinesOptions {
  /**
   * The direction in which the operand is summed over. Of a quantized tensor, the copy with scale blocks in this direction is
   * read.
   */
  readonly direction: Direction;
  /**
   * Whether the datapath needs to know if all block scales are powers of two. For a `ScaledTensor` this reads the scales to the
   * host, which waits for the device.
   */
  readonly readsScales: boolean;
}

/**
 * Returns `input` as lines along K, without a copy if possible. Throws `DTypeError`, `ShapeError` or `ArgumentError` if the
 * layout cannot multiply it.
 *
 * @shared
 */
export function linesOf(op: string, name: string, input: GemmInput, options: LinesOptions): GemmOperand {
  const { direction } = options;
  if (input instanceof QuantizedTensor) return quantizedLines(op, name, input, direction);
  if (isScaled(input)) return scaledLines(op, name, input, options);
  const format = elementFormat(op, name, input.dtype);
  const { data, transposed } = oriented(op, name, input, direction);
  return { data, transposed, traits: { format } };
}

function elementFormat(op: string, name: string, dtype: DType): GemmOperand["traits"]["format"] {
  if (!isSigned(dtype)) {
    throw new DTypeError(
      `${op}: ${name} is ${dtype}, which cannot be multiplied; give values or codes of a signed format`,
    );
  }
  return dtype;
}

/** Returns `x` as a matrix: `x` itself, or a view that the open scope disposes of. */
function asLines(x: Tensor): Tensor {
  return x.shape.length === 2 ? x : x.reshape(asMatrix(x.shape));
}

function oriented(
  op: string,
  name: string,
  x: Tensor,
  direction: Direction,
): Pick<GemmOperand, "data" | "transposed"> {
  const data = asLines(x);
  if (direction === "rowwise") return { data };
  const [depth] = data.shape as [number];
  if (storageBits(x.dtype) < 8 && depth % 2 !== 0) {
    throw new ShapeError(
      `${op}: the sum runs along the ${depth} rows of ${name}, whose ${x.dtype} codes share bytes; pad to ${depth + 1} rows`,
    );
  }
  return { data, transposed: true };
}

function quantizedLines(op: string, name: string, t: QuantizedTensor, direction: Direction): GemmOperand {
  const { spec } = t;
  const copy = t.copy(direction);
  const { scale: format } = blockFormat(spec.quantizer);
  const swizzled = t.scaleLayout === "swizzled";
  const inPlace = direction === "columnwise" && copy.geometry.data === "inPlace";
  const { data, transposed } = oriented(op, name, copy.data, inPlace ? "columnwise" : "rowwise");
  const amax = copy.amax && {
    ...(spec.rowScaled ? { lineAmaxes: copy.amax } : { amax: copy.amax }),
    amaxDivisor: amaxDivisor(op, name, spec),
  };
  if (isTensorWide(spec.tile)) {
    const tensorScale = requireF32(op, `the scale of ${name}`, copy.scaleInv);
    return { data, transposed, traits: { format: spec.format }, tensorScale };
  }
  if (isLineWide(spec.tile)) {
    const lineScales = requireF32("gemm", `the scale of ${name}`, copy.scaleInv);
    return { data, transposed, traits: { format: spec.format }, ...linesScaledBy(lineScales) };
  }
  const tensor = swizzled ? relayoutScales(t, direction, "logical") : copy.scaleInv;
  const [lines, length] = scaleSpan(spec);
  const pow2 = hasPowersByRule(spec.scaleRule, spec.pow2Scales);
  const { placement } = swizzled
    ? copyGeometry(spec, asMatrix(t.shape), direction, "logical")
    : copy.geometry;
  const { lineStride, blockStride } = placement;
  const blockScales = { tensor, lines, length, lineStride, blockStride };
  return {
    data,
    transposed,
    traits: { format: spec.format, scales: { format, lines, length, pow2 } },
    blockScales,
    ...amax,
  };
}

/** The number by which the tensor of `amax` is divided. Throws `UnsupportedError` for one that divides the scales of blocks. */
function amaxDivisor(op: string, name: string, { scaleRule, e4m3Max }: QuantizeSpec): number {
  const role = tensorScaleRole(scaleRule);
  if (role !== "divisor") return role === "multiplier" ? 1 : 6 * e4m3Max;
  throw new UnsupportedError(
    op,
    `${name} has the scale rule ${scaleRule}, whose scale of the tensor divides; dequantize it, or quantize by another rule`,
  );
}

/** Returns the scales of lines, or no scales if K is 0, because the scale tensor is then empty. */
function linesScaledBy(scales: Tensor<"f32">): Pick<GemmOperand, "lineScales"> {
  return scales.size === 0 ? {} : { lineScales: scales };
}

function scaledLines(
  op: string,
  name: string,
  input: ScaledTensor,
  { direction, readsScales }: LinesOptions,
): GemmOperand {
  const { data, tile = "tensor" } = input;
  const scaleInv = requireF32(op, `the scale of ${name}`, input.scaleInv);
  tileName(op, `tile of ${name}`, tile);
  const format = elementFormat(op, name, data.dtype);
  if (isTensorWide(tile)) {
    if (scaleInv.size !== 1)
      throw new ShapeError(`${op}: the scale of ${name} is [${scaleInv.shape}]; a per-tensor scale is [1]`);
    return { ...oriented(op, name, data, direction), traits: { format }, tensorScale: scaleInv };
  }
  if (direction === "columnwise") {
    throw new ArgumentError(
      `${op}: ${name} is scaled ${tile} along its rows and this layout multiplies along its columns; use layout TN`,
    );
  }
  const [lines, length] = tileSize(tile satisfies Tile);
  const [high, wide] = scaleGrid(tile, ...asMatrix(data.shape));
  const scaleShape = asMatrix(scaleInv.shape);
  if (scaleShape[0] !== high || scaleShape[1] !== wide) {
    throw new ShapeError(
      `${op}: ${name} [${data.shape}] with tile ${tile} needs scales [${high},${wide}]; they are [${scaleInv.shape}]`,
    );
  }
  if (isLineWide(tile)) return { data: asLines(data), traits: { format }, ...linesScaledBy(scaleInv) };
  const pow2 = readsScales && scaleInv.dataSync().every((s) => Number.isInteger(Math.log2(s)));
  const blockScales = { tensor: scaleInv, lines, length, lineStride: wide, blockStride: 1 };
  return {
    data: asLines(data),
    traits: { format, scales: { format: "f32", lines, length, pow2 } },
    blockScales,
  };
}
