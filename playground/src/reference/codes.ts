/** The codes and scales of a quantized matrix, as plain data. */
import {
  BLOCK_FORMATS,
  type BlockFormat,
  decode,
  factsOf,
  type QuantizedTensor,
  type ScalarFormat,
  type Tensor,
  type Tile,
  tileSize,
} from "lockstep";

/** Codes, scales and values of the rowwise copy of a quantized matrix. */
export interface Codes {
  readonly format: ScalarFormat;
  readonly rows: number;
  readonly columns: number;
  readonly codes: Uint32Array;
  /** The values of the codes, without their scales. */
  readonly elements: Float32Array;
  /** The values of the elements. */
  readonly values: Float32Array;
  /** The size of the block that shares a scale, at most the matrix. */
  readonly block: { readonly rows: number; readonly columns: number };
  readonly scales: Scales;
}

/** The scales of a quantized matrix, [lines, blocks]. */
export interface Scales {
  readonly format: ScalarFormat | "f32";
  readonly blocks: number;
  /** The codes; for f32 scales, their bits. */
  readonly codes: Uint32Array;
  /** The values of the codes. */
  readonly values: Float32Array;
  /** The per-tensor number (scale or amax), if scales depend on one. */
  readonly whole?: number;
  /** The rows of the matrix that a line covers. */
  readonly lineRows: number;
}

/** The index of the scale of an element. */
export function scaleIndex({ scales, block }: Codes, row: number, column: number): number {
  return Math.floor(row / scales.lineRows) * scales.blocks + Math.floor(column / block.columns);
}

/** Reads a quantized matrix whose scales are in the logical layout: its first `rows` and `columns`, with these values. */
export function codesOf(
  quantized: QuantizedTensor,
  values: Tensor<"f32">,
  [rows, columns]: readonly [number, number],
): Codes {
  const { spec } = quantized;
  const { data, scaleInv, amax, geometry } = quantized.copy("rowwise");
  const [height = 1, width = 1] = geometry.dataShape;
  const cropped = <T extends Float32Array | Uint32Array>(all: T): T => crop(all, width, rows, columns);
  const bits = factsOf(spec.format).bits;
  const whole = amax?.dataSync()[0];
  const [, blocks] = geometry.logicalScale;
  const { scale, replicates }: BlockFormat = BLOCK_FORMATS[spec.quantizer];
  const [tileRows] = tileSize(spec.tile);
  return {
    format: spec.format,
    rows,
    columns,
    codes: cropped(unpacked(data.dataSync() as ArrayLike<number>, bits, height * width)),
    elements: cropped(decode(data).dataSync()),
    values: cropped(values.dataSync()),
    block: blockOf(spec.tile, height, width),
    scales: {
      format: scale,
      ...scalesOf(scaleInv),
      blocks,
      lineRows: spec.tile === "tensor" ? height : replicates ? 1 : tileRows,
      ...(whole === undefined ? {} : { whole }),
    },
  };
}

/** The first rows and columns of a matrix of `width` columns. */
export function crop<T extends Float32Array | Uint32Array>(
  all: T,
  width: number,
  rows: number,
  columns: number,
): T {
  const kept = all.slice(0, rows * columns) as T;
  for (let row = 0; row < rows; row++)
    kept.set(all.subarray(row * width, row * width + columns), row * columns);
  return kept;
}

/** The codes of a tensor, one element each. `bits` tells whether two share a byte. */
function unpacked(codes: ArrayLike<number>, bits: number, count: number): Uint32Array {
  if (bits > 4) return Uint32Array.from(codes);
  return Uint32Array.from({ length: count }, (_, i) => ((codes[i >> 1] ?? 0) >> (4 * (i & 1))) & 15);
}

function blockOf(tile: Tile, rows: number, columns: number): Codes["block"] {
  if (tile === "tensor") return { rows, columns };
  const [tileRows, tileColumns] = tileSize(tile);
  return { rows: tileRows, columns: tileColumns === Number.POSITIVE_INFINITY ? columns : tileColumns };
}

function scalesOf(scales: Tensor): Pick<Scales, "codes" | "values"> {
  if (scales.dtype === "f32") {
    const values = (scales as Tensor<"f32">).dataSync().slice();
    return { codes: new Uint32Array(values.buffer), values };
  }
  return {
    codes: Uint32Array.from(scales.dataSync() as ArrayLike<number>),
    values: decode(scales).dataSync(),
  };
}
