/**
 * The block formats, one row each: how elements share scales, and every property of a quantizer that operations, backends and
 * layers depend on. No other code decides by a quantizer's name.
 */
import { ArgumentError } from "../errors.js";
import { describe } from "../options.js";
import type { ScalarFormat } from "./scalar.js";

/** The region that shares one scale, rows x columns along the contraction; "tensor" is all of it. */
export type Tile = "tensor" | "1x128" | "128x128" | "1x32" | "32x32" | "1x16" | "16x16";

/** How an amax becomes a scale; see `ScaleRule` in assembly/contract.ts. */
export type ScaleRuleName = "f32" | "e8m0Up" | "e8m0Floor" | "twoLevel";

/** The memory layout of a columnwise copy: transposed, or in the order of the input. */
export type Placement = "transposed" | "inPlace";

/**
 * The source of scales: `given` as a tensor, which also multiplies the f32 values of fused operations; from the amax of the
 * `whole` tensor; or from those of its `blocks`.
 */
export type ScaleSource = "given" | "whole" | "blocks";

/**
 * The layout of padded scales: per-tensor scales have no padding; `pitch` pads rows to a multiple of 4; `tiles` pads to whole
 * tiles of 128 lines by 4 blocks, which can be swizzled.
 */
export type ScalePadding = "none" | "pitch" | "tiles";

/** The options that only some quantizers have; others have them off. */
export type QuantizerOption =
  | "tile"
  | "pow2Scales"
  | "amaxEpsilon"
  | "rht"
  | "stochastic"
  | "fourOverSix"
  | "e4m3Max";

/** One row of `BLOCK_FORMATS`: how elements share scales. */
export interface BlockFormat {
  /** Supported element formats, the default first. */
  readonly elements: readonly ScalarFormat[];
  /** Supported tiles, the default first. */
  readonly tiles: readonly Tile[];
  /** The type scales are stored in. */
  readonly scale: "f32" | "e8m0" | "e4m3";
  /** How an amax becomes a scale. */
  readonly rule: ScaleRuleName;
  /** Whether a 2D tile stores its scale once, or once for each row and block it covers. */
  readonly replicates: boolean;
  /** Whether the columnwise copy's data and scales are stored transposed, or as the blocks lie in the input. */
  readonly columnwise: { readonly data: Placement; readonly scale: Placement };
  /** Rows and columns must be multiples of this. */
  readonly multiple: number;
  /** The source of scales. */
  readonly scaleSource: ScaleSource;
  /** Whether block scales are made under an amax of the whole tensor, which each copy holds (numerics.md §5.2). */
  readonly tensorAmax: boolean;
  /** The layout of padded scales. */
  readonly padding: ScalePadding;
  /** The tile whose padded scales lie transposed, GEMM_READY, unless the layout is COMPACT (numerics.md §3.3). */
  readonly gemmReadyTile?: Tile;
  /** The options of this quantizer besides its elements. */
  readonly options: readonly QuantizerOption[];
}

const FP8 = ["e4m3", "e5m2"] as const;
const TRANSPOSED = { data: "transposed", scale: "transposed" } as const;
const PER_TENSOR_OPTIONS = ["pow2Scales", "amaxEpsilon"] as const;
const MX = { scaleSource: "blocks", tensorAmax: false, padding: "tiles", options: ["tile"] } as const;
const IN_PLACE = { data: "inPlace", scale: "inPlace" } as const;

/** Every block format by the name of its quantizer: elements, tiles, scales. Frozen facts, read by quantizers and `gemm`. */
export const BLOCK_FORMATS = {
  "fp8-current": {
    elements: FP8,
    tiles: ["tensor"],
    scale: "f32",
    rule: "f32",
    replicates: false,
    columnwise: TRANSPOSED,
    multiple: 1,
    scaleSource: "whole",
    tensorAmax: false,
    padding: "none",
    options: PER_TENSOR_OPTIONS,
  },
  "fp8-delayed": {
    elements: FP8,
    tiles: ["tensor"],
    scale: "f32",
    rule: "f32",
    replicates: false,
    columnwise: TRANSPOSED,
    multiple: 1,
    scaleSource: "given",
    tensorAmax: false,
    padding: "none",
    options: [],
  },
  "fp8-block": {
    elements: FP8,
    tiles: ["1x128", "128x128"],
    scale: "f32",
    rule: "f32",
    replicates: false,
    columnwise: TRANSPOSED,
    multiple: 1,
    scaleSource: "blocks",
    tensorAmax: false,
    padding: "pitch",
    gemmReadyTile: "1x128",
    options: ["tile", ...PER_TENSOR_OPTIONS],
  },
  mxfp8: {
    elements: FP8,
    tiles: ["1x32", "32x32"],
    scale: "e8m0",
    rule: "e8m0Up",
    replicates: true,
    columnwise: IN_PLACE,
    multiple: 32,
    ...MX,
  },
  mxfp6: {
    elements: ["e2m3", "e3m2"],
    tiles: ["1x32", "32x32"],
    scale: "e8m0",
    rule: "e8m0Floor",
    replicates: true,
    columnwise: IN_PLACE,
    multiple: 32,
    ...MX,
  },
  mxfp4: {
    elements: ["e2m1"],
    tiles: ["1x32", "32x32"],
    scale: "e8m0",
    rule: "e8m0Floor",
    replicates: true,
    columnwise: { data: "transposed", scale: "inPlace" },
    multiple: 32,
    ...MX,
  },
  nvfp4: {
    elements: ["e2m1"],
    tiles: ["1x16", "16x16"],
    scale: "e4m3",
    rule: "twoLevel",
    replicates: true,
    columnwise: TRANSPOSED,
    multiple: 16,
    scaleSource: "blocks",
    tensorAmax: true,
    padding: "tiles",
    options: ["tile", "rht", "stochastic", "fourOverSix", "e4m3Max"],
  },
} as const satisfies Record<string, BlockFormat>;

/** The name of a block format; the command line's `--quantizer`. */
export type BlockFormatName = keyof typeof BLOCK_FORMATS;

/** The names of the block formats, in table order. */
export const BLOCK_FORMAT_NAMES = Object.keys(BLOCK_FORMATS) as readonly BlockFormatName[];

/** The row of that name. Throws `ArgumentError` for anything but a block format. */
export function blockFormat(name: BlockFormatName): BlockFormat {
  if (typeof name === "string" && Object.hasOwn(BLOCK_FORMATS, name)) return BLOCK_FORMATS[name];
  throw new ArgumentError(
    `no quantizer is named ${describe(name)}; there are ${BLOCK_FORMAT_NAMES.join(", ")}`,
  );
}

/** The quantizers that have `option`. */
export function quantizersWith(option: QuantizerOption): readonly BlockFormatName[] {
  return BLOCK_FORMAT_NAMES.filter((name) => blockFormat(name).options.includes(option));
}

const TILE_SIZES: Readonly<Record<Tile, readonly [rows: number, columns: number]>> = {
  tensor: [0, 0],
  "1x128": [1, 128],
  "128x128": [128, 128],
  "1x32": [1, 32],
  "32x32": [32, 32],
  "1x16": [1, 16],
  "16x16": [16, 16],
};

/** Every tile of blocks. */
export const BLOCK_TILES = (Object.keys(TILE_SIZES) as readonly Tile[]).filter((tile) => !isTensorWide(tile));

/** The tile's rows and columns; a tensor-wide tile has none. Throws `ArgumentError` for anything but a tile. */
export function tileSize(tile: Tile): readonly [rows: number, columns: number] {
  if (Object.hasOwn(TILE_SIZES, tile)) return TILE_SIZES[tile];
  throw new ArgumentError(
    `no tile is named ${describe(tile)}; there are ${Object.keys(TILE_SIZES).join(", ")}`,
  );
}

/** Whether one scale is for the whole tensor. */
export function isTensorWide(tile: Tile): boolean {
  return tile === "tensor";
}

/** Whether a tile is a square of blocks, so that both directions share its scales. */
export function isSquare(tile: Tile): boolean {
  return tileSize(tile)[0] > 1;
}

/** Whether padded scales lie transposed: GEMM_READY (numerics.md §3.3). */
export function isGemmReady(spec: BlockChoice): boolean {
  return hasGemmReadyTile(spec) && !spec.compact;
}

/** Whether scales have the layouts GEMM_READY and COMPACT to choose from. */
export function hasGemmReadyTile({ quantizer, tile }: Pick<BlockChoice, "quantizer" | "tile">): boolean {
  return blockFormat(quantizer).gemmReadyTile === tile;
}

/** Whether the columnwise copy can be derived from the rowwise one: scales are square or per-tensor. */
export function isDirectionless({ quantizer, tile }: Pick<BlockChoice, "quantizer" | "tile">): boolean {
  return isTensorWide(tile) || (isSquare(tile) && !blockFormat(quantizer).replicates);
}

/** Whether values are multiplied by a given scale, and so are cast from f32 where they are computed (numerics.md §7.3). */
export function hasGivenScale({ quantizer }: Pick<BlockChoice, "quantizer">): boolean {
  return blockFormat(quantizer).scaleSource === "given";
}

/** The fields of a spec that decide how scales are shared. */
interface BlockChoice {
  readonly quantizer: BlockFormatName;
  readonly tile: Tile;
  readonly compact: boolean;
}
