/** Storage of elements and scales: tiles, transposes, padding, the 128x4 swizzle, packed 4-bit codes. */
import type { E8M0_RULES, QUOTIENTS, TENSOR_RULES } from "../core/scale.js";

/**
 * The scale rule. Three names are forms of the rule f32: `given` is the caller's scale, `whole` the multiplier of a tensor, and
 * `block` the multiplier of a block.
 */
export type ScaleRule =
  | "given"
  | "whole"
  | "block"
  | "f32Reciprocal"
  | "twoLevel"
  | "ue5m3Quotient"
  | keyof typeof TENSOR_RULES
  | keyof typeof E8M0_RULES
  | keyof typeof QUOTIENTS;

/** A quantizer's properties in the specification. */
interface Family {
  /** The number of elements along a line that share a scale; 0 for the whole tensor, infinity for the whole line. */
  readonly block: number;
  /** The default element format. */
  readonly format: "e4m3" | "e2m3" | "e2m1" | "int8" | "s2f6" | "int4";
  /** The rule if the spec names none. */
  readonly rule: ScaleRule;
  /** The format of the stored scales. */
  readonly scale: "f32" | "e8m0" | "e4m3" | "ue5m3";
  /** True if the codes of the columnwise copy are stored untransposed. */
  readonly keepsRows?: boolean;
  /** True if f32 scales are powers of two by default. */
  readonly pow2?: boolean;
  /** True if the last block of a column is padded with zeros; false if it has fewer elements. */
  readonly isPadded?: boolean;
  /**
   * The columnwise copy is padded with zero rows to a multiple of this number. Present only if the family allows partial
   * blocks.
   */
  readonly rows?: number;
}

export const FAMILIES = {
  "fp8-current": { block: 0, format: "e4m3", rule: "whole", scale: "f32" },
  "fp8-delayed": { block: 0, format: "e4m3", rule: "given", scale: "f32" },
  "fp8-block": { block: 128, format: "e4m3", rule: "block", scale: "f32", pow2: true },
  "fp8-row": { block: Number.POSITIVE_INFINITY, format: "e4m3", rule: "block", scale: "f32" },
  "int8-row": { block: Number.POSITIVE_INFINITY, format: "int8", rule: "f32Quotient", scale: "f32" },
  mxint8: { block: 32, format: "s2f6", rule: "e8m0Floor", scale: "e8m0", keepsRows: true, isPadded: true },
  mxfp8: { block: 32, format: "e4m3", rule: "e8m0Up", scale: "e8m0", keepsRows: true, isPadded: true },
  mxfp6: { block: 32, format: "e2m3", rule: "e8m0Floor", scale: "e8m0", keepsRows: true, isPadded: true },
  mxfp4: { block: 32, format: "e2m1", rule: "e8m0Floor", scale: "e8m0", isPadded: true },
  nvfp4: { block: 16, format: "e2m1", rule: "twoLevel", scale: "e4m3", isPadded: true },
  "fp4-ue5m3": { block: 16, format: "e2m1", rule: "ue5m3Quotient", scale: "ue5m3", isPadded: true },
  "int4-group": { block: 128, format: "int4", rule: "f32Quotient", scale: "f32", rows: 32 },
} as const satisfies Readonly<Record<string, Family>>;

export type QuantizerName = keyof typeof FAMILIES;
export type Usage = "rowwise" | "columnwise";
export type TileName = "1xK" | "1x128" | "128x128" | "1x32" | "32x32" | "1x16" | "16x16" | "1x64";
export type Shape = readonly [number, number];

/** The quantizer and the options that determine the layout of a copy. */
export interface LayoutSpec {
  readonly quantizer: QuantizerName;
  /** Default: 1x128, 1x32 or 1x16, depending on the quantizer; 1x128 for int4-group. */
  readonly tile?: TileName;
  /** For fp8-block with 1x128 tiles: the columnwise copy is stored untransposed (numerics.md §3.3, COMPACT). */
  readonly compact?: boolean;
}

/** The tiling of a copy, in terms of elements (r, c) of the [M, K] source. */
export interface Tiling {
  /** Rows and columns of a tile, whose elements share one amax. */
  readonly tile: Shape;
  /** Rows and columns per entry of the scale matrix. Smaller than the tile if each scale is stored several times. */
  readonly step: Shape;
  readonly codesTransposed: boolean;
  readonly scalesTransposed: boolean;
}

/** The properties of a quantizer in the specification. */
export function layoutFamily({ quantizer }: Pick<LayoutSpec, "quantizer">): Family {
  return FAMILIES[quantizer];
}

/** The size of the matrix from which a copy of an [M, K] tensor is computed. The columnwise one may have extra rows of zeros. */
export function copySize(spec: LayoutSpec, usage: Usage, [m, k]: Shape): Shape {
  const { block, isPadded = false, rows = 1 } = layoutFamily(spec);
  return [usage === "columnwise" ? roundUp(m, isPadded ? block : rows) : m, k];
}

function isSquare({ tile }: LayoutSpec): boolean {
  return tile !== undefined && !tile.startsWith("1x");
}

/** The number of elements along a line that share a scale. Only int4-group takes it from the tile. */
function blockLength(spec: LayoutSpec): number {
  const { block } = layoutFamily(spec);
  return spec.quantizer === "int4-group" ? Number(spec.tile?.slice(2) ?? block) : block;
}

export function isPerTensor(spec: LayoutSpec): boolean {
  return layoutFamily(spec).block === 0;
}

/** The tiling and storage of a copy of an [M, K] tensor (the table of logical shapes in cli.md). */
export function copyTiling(spec: LayoutSpec, usage: Usage, [m, k]: Shape): Tiling {
  const columnwise = usage === "columnwise";
  if (isPerTensor(spec)) {
    const matrixShape: Shape = [Math.max(m, 1), Math.max(k, 1)];
    return { tile: matrixShape, step: matrixShape, codesTransposed: columnwise, scalesTransposed: false };
  }
  const { quantizer } = spec;
  const { keepsRows = false } = layoutFamily(spec);
  const length = blockLength(spec);
  const block = Math.min(length, Math.max(columnwise ? m : k, 1));
  const line: Shape = columnwise ? [block, 1] : [1, block];
  const tile: Shape = isSquare(spec) ? [length, length] : line;
  const compact = spec.compact === true && !isSquare(spec);
  const gemmReady =
    length === 16 ||
    quantizer === "int4-group" ||
    length === Number.POSITIVE_INFINITY ||
    (quantizer === "fp8-block" && !compact);
  return {
    tile,
    step: quantizer === "fp8-block" ? tile : line,
    codesTransposed: columnwise && !(keepsRows || compact),
    scalesTransposed: columnwise && gemmReady,
  };
}

/** A matrix of scale codes, or of f32 bit patterns. */
export interface ScaleMatrix {
  readonly values: readonly number[];
  readonly shape: Shape;
}

function roundUp(n: number, multiple: number): number {
  return Math.ceil(n / multiple) * multiple;
}

function transpose({ values, shape: [rows, columns] }: ScaleMatrix): ScaleMatrix {
  const shape: Shape = [columns, rows];
  return { values: fill(shape, (i, j) => values[j * columns + i] ?? 0), shape };
}

function fill([rows, columns]: Shape, elementAt: (i: number, j: number) => number): number[] {
  return Array.from({ length: rows * columns }, (_, n) => elementAt(Math.floor(n / columns), n % columns));
}

/**
 * Pads a logical scale matrix with zeros to the shape that GEMMs take. For fp8-block with 1x128 tiles it is transposed
 * too.
 */
export function padScales(logical: ScaleMatrix, spec: LayoutSpec, usage: Usage): ScaleMatrix {
  const orientedScales = spec.quantizer === "fp8-block" && !isSquare(spec) ? transpose(logical) : logical;
  const [rows, columns] = orientedScales.shape;
  const shape = paddedShape(orientedScales.shape, spec, usage);
  const elementAt = (i: number, j: number) =>
    i < rows && j < columns ? (orientedScales.values[i * columns + j] ?? 0) : 0;
  return { values: fill(shape, elementAt), shape };
}

function paddedShape([rows, columns]: Shape, spec: LayoutSpec, usage: Usage): Shape {
  if (layoutFamily(spec).block === Number.POSITIVE_INFINITY || spec.quantizer === "int4-group")
    return [rows, columns];
  if (spec.quantizer === "fp8-block") return [rows, roundUp(columns, 4)];
  if (blocksRunDown(spec, usage)) return [roundUp(rows, 4), roundUp(columns, 128)];
  return [roundUp(rows, 128), roundUp(columns, 4)];
}

/** Whether the first dimension of the scale matrix is the block index, as in columnwise MX copies. */
function blocksRunDown(spec: LayoutSpec, usage: Usage): boolean {
  return usage === "columnwise" && layoutFamily(spec).block !== 16;
}

/** The offset of scale (i, j) in the 128x4 layout of a matrix with `columns` blocks per line (numerics.md §4.6). */
export function swizzledOffset(i: number, j: number, columns: number): number {
  const tile = Math.floor(i / 128) * Math.ceil(columns / 4) + Math.floor(j / 4);
  return tile * 512 + (i % 32) * 16 + Math.floor((i % 128) / 32) * 4 + (j % 4);
}

/** A logical MX or NVFP4 scale matrix in the swizzled layout; padding is zero. The shape is that of padScales. */
export function swizzleScales(logical: ScaleMatrix, spec: LayoutSpec, usage: Usage): ScaleMatrix {
  const { values, shape } = blocksRunDown(spec, usage) ? transpose(logical) : logical;
  const [rows, columns] = shape;
  const bytes = new Array<number>(roundUp(rows, 128) * roundUp(columns, 4)).fill(0);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) bytes[swizzledOffset(i, j, columns)] = values[i * columns + j] ?? 0;
  }
  return { values: bytes, shape: paddedShape(logical.shape, spec, usage) };
}

/** The elements of a tensor with two axes swapped: element (.., a, .., b, ..) moves to (.., b, .., a, ..). */
export function swapAxes(
  elements: ArrayLike<number>,
  shape: readonly number[],
  axis1: number,
  axis2: number,
): { readonly elements: number[]; readonly shape: number[] } {
  const exchange = (sizes: readonly number[]): number[] => {
    const result = [...sizes];
    const [size1, size2] = [result.at(axis1) as number, result.at(axis2) as number];
    result.splice(axis1, 1, size2);
    result.splice(axis2, 1, size1);
    return result;
  };
  const swappedShape = exchange(shape);
  const result = Array.from(elements, (_, index) => {
    const indices: number[] = [];
    for (let axis = swappedShape.length - 1, remainder = index; axis >= 0; axis--) {
      const size = swappedShape[axis] as number;
      indices.unshift(remainder % size);
      remainder = Math.floor(remainder / size);
    }
    const source = exchange(indices).reduce((at, i, axis) => at * (shape[axis] as number) + i, 0);
    return elements[source] as number;
  });
  return { elements: result, shape: swappedShape };
}

/** Packs two 4-bit codes per byte, the even element in the low nibble. Throws RangeError for an odd count. */
export function packNibbles(codes: Uint8Array): Uint8Array {
  if (codes.length % 2 === 1)
    throw new RangeError(`packNibbles: ${codes.length} codes given, an even count needed`);
  return Uint8Array.from(
    { length: codes.length / 2 },
    (_, i) => (codes[2 * i] ?? 0) + 16 * (codes[2 * i + 1] ?? 0),
  );
}

export function unpackNibbles(bytes: Uint8Array): Uint8Array {
  return Uint8Array.from(
    { length: 2 * bytes.length },
    (_, i) => ((bytes[i >> 1] ?? 0) >> (4 * (i % 2))) & 15,
  );
}
