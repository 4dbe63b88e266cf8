/**
 * The block formats, one row each: how elements share scales, and every property of a quantizer that operations, backends and
 * layers depend on. No other code branches on the name of a quantizer.
 *
 * A quantized [M, K] matrix has up to two copies. The rowwise copy has its scale blocks along K, for products that sum over K;
 * the columnwise copy has them along M.
 */
import { ArgumentError } from "../errors.js";
import { describe } from "../options.js";
import type { BlockScaleFormat } from "./datapath.js";
import type { ScalarFormat } from "./scalar.js";
import { mayEncodeZerosAsNaN, type ScaleRuleName } from "./scale-rules.js";

/**
 * The region of elements that share one scale, as rows x columns. Columns are the dimension that a product sums over. "tensor" is
 * the whole tensor, "1xK" a whole line: a row in the rowwise copy, a column in the columnwise one.
 */
export type Tile = "tensor" | "1xK" | "1x128" | "128x128" | "1x32" | "32x32" | "1x16" | "16x16" | "1x64";

/**
 * How a copy is stored: transposed, or with the elements in the order of the input (`inPlace`; the memory is a different one).
 */
export type Placement = "transposed" | "inPlace";

/**
 * Where scales come from. `given`: the caller passes the scale as a tensor; fused operations multiply their f32 values by it.
 * `whole`: the scale is computed from the amax of the whole tensor. `blocks`: each scale is computed from the amax of its
 * block.
 */
export type ScaleSource = "given" | "whole" | "blocks";

/**
 * How the scale matrix is padded. `none`: scales of tensors and of lines are not padded. `pitch`: rows are padded to a multiple
 * of 4 scales. `tiles`: the matrix is padded to whole tiles of 128 lines by 4 blocks, which can be swizzled.
 */
export type ScalePadding = "none" | "pitch" | "tiles";

/** The options that only some quantizers have. In a spec of another quantizer they have their off value. */
export type QuantizerOption =
  | "tile"
  | "scaleRule"
  | "elementScaling"
  | "pow2Scales"
  | "amaxEpsilon"
  | "amaxLimit"
  | "rht"
  | "stochastic"
  | "fourOverSix"
  | "e4m3Max"
  | "rowScaled";

/** One row of `BLOCK_FORMATS`. */
export interface BlockFormat {
  /** The element formats. The first is the default. */
  readonly elements: readonly ScalarFormat[];
  /** The tiles. The first is the default. */
  readonly tiles: readonly Tile[];
  /** The dtype of the stored scales. */
  readonly scale: BlockScaleFormat;
  /** The rules by which an amax can become a scale. The first is the default. */
  readonly rules: readonly ScaleRuleName[];
  /**
   * Whether a 2D tile stores its scale once for each line (row or column) that it covers. If false, the scale is stored once
   * per tile.
   */
  readonly replicates: boolean;
  /** Whether data and scales of the columnwise copy are stored transposed or in the order of the input. */
  readonly columnwise: { readonly data: Placement; readonly scale: Placement };
  /**
   * The number of columns must be a multiple of this; the number of rows may be any. A columnwise copy has whole blocks: rows of
   * zeros extend the matrix to a multiple (`blockedRows`).
   */
  readonly multiple: number;
  /** Where scales come from. */
  readonly scaleSource: ScaleSource;
  /**
   * Whether the scales of blocks can also depend on the amax of the whole tensor. Each copy then stores that amax, or the scale
   * of the tensor that the scale rule computes from it (numerics.md §5.2, §5.11). With `rowScaled`, it stores the amaxes of its
   * lines instead (§5.9).
   */
  readonly tensorAmax: boolean;
  /** How the scale matrix is padded. */
  readonly padding: ScalePadding;
  /**
   * The tile whose padded scales are stored transposed (data layout GEMM_READY), unless the data layout is COMPACT (numerics.md
   * §3.3).
   */
  readonly gemmReadyTile?: Tile;
  /** The options of this quantizer, besides the element format. */
  readonly options: readonly QuantizerOption[];
}

const FP8 = ["e4m3", "e5m2"] as const;
/** FP8 under f32 scales: OCP's formats, and the formats of AMD's MI300 and its software (fnuz). */
const FP8_ALL = [...FP8, "e4m3fnuz", "e5m2fnuz"] as const;
const TRANSPOSED = { data: "transposed", scale: "transposed" } as const;
const F32_OPTIONS = ["scaleRule", "elementScaling", "pow2Scales", "amaxEpsilon"] as const;
const F32_RULES = ["f32", "f32Quotient", "f32QuotientTyped", "f32QuotientLeast", "f32QuotientUp"] as const;
const MX_OPTIONS = ["tile", "scaleRule", "elementScaling"] as const;
const MX = {
  scale: "e8m0",
  replicates: true,
  multiple: 32,
  scaleSource: "blocks",
  tensorAmax: false,
  padding: "tiles",
  options: [...MX_OPTIONS, "stochastic"],
} as const;
const E8M0_RULES = [
  "e8m0UpQuotient",
  "e8m0UpLog2",
  "e8m0Ceil",
  "e8m0Even",
  "e8m0EvenShort",
  "e8m0UpLeast",
  "e8m0UpNormal",
] as const;
const ROUNDED_UP = ["e8m0Up", "e8m0Floor", ...E8M0_RULES] as const;
const ROUNDED_DOWN = ["e8m0Floor", "e8m0Up", ...E8M0_RULES] as const;
const INTEGER_RULES = [
  "f32Quotient",
  "f32QuotientTyped",
  "f32QuotientLeast",
  "f32QuotientRange",
  "f32QuotientUp",
  "f32",
  "f32Reciprocal",
] as const;
const IN_PLACE = { data: "inPlace", scale: "inPlace" } as const;

/** Every block format by the name of its quantizer. */
export const BLOCK_FORMATS = {
  "fp8-current": {
    elements: FP8_ALL,
    tiles: ["tensor"],
    scale: "f32",
    rules: F32_RULES,
    replicates: false,
    columnwise: TRANSPOSED,
    multiple: 1,
    scaleSource: "whole",
    tensorAmax: false,
    padding: "none",
    options: F32_OPTIONS,
  },
  "fp8-delayed": {
    elements: FP8_ALL,
    tiles: ["tensor"],
    scale: "f32",
    rules: ["f32"],
    replicates: false,
    columnwise: TRANSPOSED,
    multiple: 1,
    scaleSource: "given",
    tensorAmax: false,
    padding: "none",
    options: [],
  },
  "fp8-block": {
    elements: FP8_ALL,
    tiles: ["1x128", "128x128"],
    scale: "f32",
    rules: [...F32_RULES, "f32Reciprocal"],
    replicates: false,
    columnwise: TRANSPOSED,
    multiple: 1,
    scaleSource: "blocks",
    tensorAmax: false,
    padding: "pitch",
    gemmReadyTile: "1x128",
    options: ["tile", ...F32_OPTIONS],
  },
  "fp8-row": {
    elements: FP8_ALL,
    tiles: ["1xK"],
    scale: "f32",
    rules: [...F32_RULES, "f32Reciprocal"],
    replicates: false,
    columnwise: TRANSPOSED,
    multiple: 1,
    scaleSource: "blocks",
    tensorAmax: false,
    padding: "none",
    options: [...F32_OPTIONS, "amaxLimit"],
  },
  "int8-row": {
    elements: ["int8"],
    tiles: ["1xK"],
    scale: "f32",
    rules: INTEGER_RULES,
    replicates: false,
    columnwise: TRANSPOSED,
    multiple: 1,
    scaleSource: "blocks",
    tensorAmax: false,
    padding: "none",
    options: ["scaleRule", "elementScaling", "amaxEpsilon", "amaxLimit"],
  },
  mxfp8: {
    elements: FP8,
    tiles: ["1x32", "32x32"],
    rules: ROUNDED_UP,
    columnwise: IN_PLACE,
    ...MX,
  },
  mxfp6: {
    elements: ["e2m3", "e3m2"],
    tiles: ["1x32", "32x32"],
    rules: ROUNDED_DOWN,
    columnwise: IN_PLACE,
    ...MX,
  },
  mxfp4: {
    elements: ["e2m1"],
    tiles: ["1x32", "32x32"],
    rules: [...ROUNDED_DOWN, "e8m0FloorLog2"],
    columnwise: { data: "transposed", scale: "inPlace" },
    ...MX,
  },
  mxint8: {
    elements: ["s2f6"],
    tiles: ["1x32", "32x32"],
    rules: ROUNDED_DOWN,
    columnwise: IN_PLACE,
    ...MX,
    options: MX_OPTIONS,
  },
  nvfp4: {
    elements: ["e2m1"],
    tiles: ["1x16", "16x16"],
    scale: "e4m3",
    rules: [
      "twoLevel",
      "e4m3Quotient",
      "twoLevelQuotient",
      "twoLevelProduct",
      "twoLevelDivisor",
      "e4m3HalfUp",
    ],
    replicates: true,
    columnwise: TRANSPOSED,
    multiple: 16,
    scaleSource: "blocks",
    tensorAmax: true,
    padding: "tiles",
    options: [
      "tile",
      "scaleRule",
      "elementScaling",
      "rht",
      "stochastic",
      "fourOverSix",
      "e4m3Max",
      "rowScaled",
    ],
  },
  "fp4-ue5m3": {
    elements: ["e2m1"],
    tiles: ["1x16", "16x16"],
    scale: "ue5m3",
    rules: ["ue5m3Quotient"],
    replicates: true,
    columnwise: TRANSPOSED,
    multiple: 16,
    scaleSource: "blocks",
    tensorAmax: false,
    padding: "tiles",
    options: ["tile", "elementScaling"],
  },
  "int4-group": {
    elements: ["int4"],
    tiles: ["1x128", "1x64", "1x32"],
    scale: "f32",
    rules: INTEGER_RULES,
    replicates: false,
    columnwise: TRANSPOSED,
    multiple: 32,
    scaleSource: "blocks",
    tensorAmax: false,
    padding: "none",
    options: ["tile", "scaleRule", "elementScaling", "amaxEpsilon"],
  },
} as const satisfies Record<string, BlockFormat>;

/** The name of a block format, as in the command line option `--quantizer`. */
export type BlockFormatName = keyof typeof BLOCK_FORMATS;

/** The names of the block formats, in table order. */
export const BLOCK_FORMAT_NAMES = Object.keys(BLOCK_FORMATS) as readonly BlockFormatName[];

/** Returns the row of a block format. Throws `ArgumentError` for an unknown name. */
export function blockFormat(name: BlockFormatName): BlockFormat {
  if (typeof name === "string" && Object.hasOwn(BLOCK_FORMATS, name)) return BLOCK_FORMATS[name];
  throw new ArgumentError(
    `no quantizer is named ${describe(name)}; there are ${BLOCK_FORMAT_NAMES.join(", ")}`,
  );
}

/** Returns the names of the quantizers that have `option`. */
export function quantizersWith(option: QuantizerOption): readonly BlockFormatName[] {
  return BLOCK_FORMAT_NAMES.filter((name) => blockFormat(name).options.includes(option));
}

const TILE_SIZES: Readonly<Record<Tile, readonly [rows: number, columns: number]>> = {
  tensor: [0, 0],
  "1xK": [1, Number.POSITIVE_INFINITY],
  "1x128": [1, 128],
  "128x128": [128, 128],
  "1x32": [1, 32],
  "32x32": [32, 32],
  "1x16": [1, 16],
  "16x16": [16, 16],
  "1x64": [1, 64],
};

/** All tiles. */
export const TILES = Object.keys(TILE_SIZES) as readonly Tile[];

/**
 * Returns the rows and columns of a tile: [0, 0] for "tensor", infinitely many columns for whole lines.
 *
 * @throws `ArgumentError` for an unknown tile.
 */
export function tileSize(tile: Tile): readonly [rows: number, columns: number] {
  if (typeof tile === "string" && Object.hasOwn(TILE_SIZES, tile)) return TILE_SIZES[tile];
  throw new ArgumentError(
    `tileSize: no tile is named ${describe(tile)}; there are ${Object.keys(TILE_SIZES).join(", ")}`,
  );
}

/**
 * Returns how many lines of a copy share a stored scale, and how many elements along a line. These are the sizes of the tile,
 * except that a quantizer which replicates scales stores one for each line of a square tile. Both are 0 for "tensor".
 */
export function scaleSpan({
  quantizer,
  tile,
}: Pick<BlockChoice, "quantizer" | "tile">): readonly [lines: number, length: number] {
  const [lines, length] = tileSize(tile);
  return [blockFormat(quantizer).replicates ? Math.min(lines, 1) : lines, length];
}

/** Returns the number of blocks of `width` elements, as `tileSize` gives it, in a line of `length`; the last may be partial. */
export function blocksIn(length: number, width: number): number {
  return width === Number.POSITIVE_INFINITY ? Math.min(length, 1) : Math.ceil(length / width);
}

/** Returns the rows and columns of the scales of a matrix with one scale per tile. */
export function scaleGrid(
  tile: Tile,
  rows: number,
  columns: number,
): readonly [rows: number, columns: number] {
  const [height, width] = tileSize(tile);
  return isTensorWide(tile) ? [1, 1] : [Math.ceil(rows / height), blocksIn(columns, width)];
}

/** Returns the number of rows that the columnwise copy of a matrix of `rows` rows has, rows of zeros included. */
export function blockedRows({ quantizer }: Pick<BlockChoice, "quantizer">, rows: number): number {
  const { multiple } = blockFormat(quantizer);
  return Math.ceil(rows / multiple) * multiple;
}

/** Whether the whole tensor has one scale. */
export function isTensorWide(tile: Tile): boolean {
  return tile === "tensor";
}

/** Whether each line has one scale, whatever its length. */
export function isLineWide(tile: Tile): boolean {
  return tileSize(tile)[1] === Number.POSITIVE_INFINITY;
}

/** Whether a tile is square, so that rowwise and columnwise copies have the same blocks. */
export function isSquare(tile: Tile): boolean {
  return tileSize(tile)[0] > 1;
}

/** Whether padded scales are stored transposed: data layout GEMM_READY (numerics.md §3.3). */
export function isGemmReady(spec: BlockChoice): boolean {
  return hasGemmReadyTile(spec) && !spec.compact;
}

/** Whether the spec has a choice between the data layouts GEMM_READY and COMPACT. */
export function hasGemmReadyTile({ quantizer, tile }: Pick<BlockChoice, "quantizer" | "tile">): boolean {
  return blockFormat(quantizer).gemmReadyTile === tile;
}

/**
 * Whether the columnwise copy can be derived from the rowwise one. It can if scales are per tensor or stored once per square
 * tile.
 */
export function isDirectionless(choice: Pick<BlockChoice, "quantizer" | "tile">): boolean {
  return isTensorWide(choice.tile) || scaleSpan(choice)[0] > 1;
}

/**
 * Returns why the columnwise copy of a matrix with `rows` rows does not follow from its rowwise one, as a clause for messages;
 * undefined if it does. It does if each scale belongs to a whole tensor or to a square tile, and both copies round each element
 * in the same way. The rows of zeros that fill the last tile must have codes of zero.
 */
export function underivable(
  choice: Pick<BlockChoice, "quantizer" | "tile"> & {
    readonly scaleRule: ScaleRuleName;
    readonly stochastic: boolean;
    readonly fourOverSix: string;
  },
  rows: number,
): string | undefined {
  if (isDirectionless(choice)) return undefined;
  if (!isSquare(choice.tile))
    return `its ${choice.tile} blocks lie along rows, and columns have other scales`;
  if (choice.stochastic) return "each copy is rounded by random bits of its own";
  if (choice.fourOverSix !== "none") return "4over6 may choose another scale for each copy of a tile";
  if (rows % tileSize(choice.tile)[0] !== 0 && mayEncodeZerosAsNaN(choice.scaleRule))
    return `its ${rows} rows do not fill the last tile, and ${choice.scaleRule} may give rows of zeros codes other than 0`;
  return undefined;
}

/** Whether the caller gives the scale. Fused operations then quantize their f32 values directly (numerics.md §7.3). */
export function hasGivenScale({ quantizer }: Pick<BlockChoice, "quantizer">): boolean {
  return blockFormat(quantizer).scaleSource === "given";
}

/**
 * Whether scales depend on the amax of the whole tensor, which the quantization itself computes. With `rowScaled` they do not.
 */
export function usesTensorAmax({
  quantizer,
  rowScaled,
}: Pick<BlockChoice, "quantizer"> & { readonly rowScaled: boolean }): boolean {
  const { scaleSource, tensorAmax } = blockFormat(quantizer);
  return scaleSource === "whole" || (tensorAmax && !rowScaled);
}

/** The fields of a spec that decide how scales are shared and stored. */
interface BlockChoice {
  readonly quantizer: BlockFormatName;
  readonly tile: Tile;
  readonly compact: boolean;
}
