/** The block formats, one row each: how elements share scales. Recipes and quantizers refer to these rows. */
import type { ScalarFormat } from "./scalar.js";

/** The region that shares one scale, rows x columns along the contraction; "tensor" is all of it. */
export type Tile = "tensor" | "1x128" | "128x128" | "1x32" | "32x32" | "1x16" | "16x16";

/** How an amax becomes a scale; see `ScaleRule` in assembly/contract.ts. */
export type ScaleRuleName = "f32" | "e8m0Up" | "e8m0Floor" | "twoLevel";

/** How a columnwise copy lies in memory: as the transpose of the matrix, or as the blocks lie in the input. */
export type Placement = "transposed" | "inPlace";

/** One row of `BLOCK_FORMATS`: how elements share scales. */
export interface BlockFormat {
  /** Element formats it exists in, the default first. */
  readonly elements: readonly ScalarFormat[];
  /** Tiles it exists in, the default first. */
  readonly tiles: readonly Tile[];
  /** The type scales are stored in. */
  readonly scale: "f32" | "e8m0" | "e4m3";
  readonly rule: ScaleRuleName;
  /** Whether a 2D tile stores its scale once, or once for each row and block it covers. */
  readonly replicates: boolean;
  /** Whether the columnwise copy's data and scales are stored transposed, or as the blocks lie in the input. */
  readonly columnwise: { readonly data: Placement; readonly scale: Placement };
  /** Rows and columns must be multiples of this. */
  readonly multiple: number;
}

const FP8 = ["e4m3", "e5m2"] as const;
const TRANSPOSED = { data: "transposed", scale: "transposed" } as const;
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
  },
  "fp8-delayed": {
    elements: FP8,
    tiles: ["tensor"],
    scale: "f32",
    rule: "f32",
    replicates: false,
    columnwise: TRANSPOSED,
    multiple: 1,
  },
  "fp8-block": {
    elements: FP8,
    tiles: ["1x128", "128x128"],
    scale: "f32",
    rule: "f32",
    replicates: false,
    columnwise: TRANSPOSED,
    multiple: 1,
  },
  mxfp8: {
    elements: FP8,
    tiles: ["1x32", "32x32"],
    scale: "e8m0",
    rule: "e8m0Up",
    replicates: true,
    columnwise: IN_PLACE,
    multiple: 32,
  },
  mxfp6: {
    elements: ["e2m3", "e3m2"],
    tiles: ["1x32", "32x32"],
    scale: "e8m0",
    rule: "e8m0Floor",
    replicates: true,
    columnwise: IN_PLACE,
    multiple: 32,
  },
  mxfp4: {
    elements: ["e2m1"],
    tiles: ["1x32", "32x32"],
    scale: "e8m0",
    rule: "e8m0Floor",
    replicates: true,
    columnwise: { data: "transposed", scale: "inPlace" },
    multiple: 32,
  },
  nvfp4: {
    elements: ["e2m1"],
    tiles: ["1x16", "16x16"],
    scale: "e4m3",
    rule: "twoLevel",
    replicates: true,
    columnwise: TRANSPOSED,
    multiple: 16,
  },
} as const satisfies Record<string, BlockFormat>;

/** The name of a block format; the command line's `--quantizer`. */
export type BlockFormatName = keyof typeof BLOCK_FORMATS;

const TILE_SIZES: Readonly<Record<Tile, readonly [rows: number, columns: number]>> = {
  tensor: [0, 0],
  "1x128": [1, 128],
  "128x128": [128, 128],
  "1x32": [1, 32],
  "32x32": [32, 32],
  "1x16": [1, 16],
  "16x16": [16, 16],
};

/** The tile's rows and columns; a tensor-wide tile has none. */
export function tileSize(tile: Tile): readonly [rows: number, columns: number] {
  return TILE_SIZES[tile];
}
