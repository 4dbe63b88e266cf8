/** A matrix quantized under a dialect, as plain data. */
import {
  type Backend,
  BLOCK_FORMATS,
  type BlockFormat,
  type BlockFormatName,
  DIALECTS,
  type Dialect,
  type DialectName,
  decode,
  encode,
  factsOf,
  type QuantizeSpec,
  quantizerOf,
  type ScalarFormat,
  type Tensor,
  type Tile,
  tensor,
  type WideDType,
} from "lockstep";
import { within } from "./backend.js";
import { unpacked } from "./rounding.js";

/** Numbers of one type, row by row. */
export interface Matrix {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float32Array;
  /** The type that the values are rounded to before they are quantized. */
  readonly dtype: WideDType;
}

/** A dialect, and which of its quantizers, formats and tiles. */
export interface Choice {
  readonly dialect: DialectName;
  readonly quantizer: BlockFormatName;
  readonly format: ScalarFormat;
  readonly tile: Tile;
}

/** Every choice that the dialects have, in the order of their table. The first tile and format of a form are its default. */
export const CHOICES: readonly Choice[] = Object.entries(DIALECTS).flatMap(([dialect, row]) =>
  (row as Dialect).forms.flatMap(({ quantizer, formats, tiles }) => {
    const { elements, tiles: all }: BlockFormat = BLOCK_FORMATS[quantizer];
    return (tiles ?? all).flatMap((tile) =>
      (formats ?? elements).map((format) => ({ dialect: dialect as DialectName, quantizer, format, tile })),
    );
  }),
);

/** A matrix and its quantized form. Codes, scales and values are those of the rowwise copy. */
export interface Quantization {
  readonly choice: Choice;
  readonly spec: QuantizeSpec;
  readonly rows: number;
  readonly columns: number;
  /** What was quantized: the matrix, rounded to its type. */
  readonly inputs: Float32Array;
  readonly codes: Uint32Array;
  /** The values of the codes, without their scales. */
  readonly elements: Float32Array;
  /** The values of the elements: codes times scales. */
  readonly values: Float32Array;
  /** The block that shares a scale, at most the matrix. */
  readonly block: { readonly rows: number; readonly columns: number };
  readonly scales: Scales;
}

/** The scales of a quantized matrix, [lines, blocks]. */
export interface Scales {
  readonly format: BlockFormat["scale"];
  readonly blocks: number;
  /** The codes; of f32 scales, their bits. */
  readonly codes: Uint32Array;
  /** What the value of a code is multiplied by, the factor of the tensor included. */
  readonly values: Float64Array;
  /** The amax of the tensor, if scales depend on it. */
  readonly tensorAmax?: number;
  /** The rows of the matrix that a line covers. */
  readonly lineRows: number;
}

/** The index of the scale of an element. */
export function scaleIndex({ scales, block }: Quantization, row: number, column: number): number {
  return Math.floor(row / scales.lineRows) * scales.blocks + Math.floor(column / block.columns);
}

/** Quantizes a matrix. Zeros fill it up to whole blocks where the format requires that; they are left out again. */
export function quantize(backend: Backend, matrix: Matrix, choice: Choice): Quantization {
  const { multiple, tensorAmax }: BlockFormat = BLOCK_FORMATS[choice.quantizer];
  const [rows, columns] = [matrix.rows, matrix.columns];
  const padded = [roundUp(rows, multiple), roundUp(columns, multiple)] as const;
  const cropped = <T extends Float32Array | Uint32Array>(all: T): T => {
    const kept = all.slice(0, rows * columns) as T;
    for (let row = 0; row < rows; row++)
      kept.set(all.subarray(row * padded[1], row * padded[1] + columns), row * columns);
    return kept;
  };
  return within(() => {
    const x = typed(tensor(backend, filled(matrix, padded), padded), matrix.dtype);
    const { dialect, quantizer, format, tile } = choice;
    const quantized = quantizerOf({ dialect, quantizer, format, tile }).quantize(x);
    const { data, scaleInv, amax, geometry } = quantized.copy("rowwise");
    const codes = unpacked(data.dataSync() as ArrayLike<number>, factsOf(format).bits, padded[0] * padded[1]);
    const [lines, blocks] = geometry.logicalScale;
    const lineRows = Math.ceil(padded[0] / lines);
    const whole = amax?.dataSync()[0];
    return {
      choice,
      spec: quantized.spec,
      rows,
      columns,
      inputs: cropped(wide(x)),
      codes: cropped(codes),
      elements: cropped(decode(data).dataSync()),
      values: cropped((quantized.dequantize("f32") as Tensor<"f32">).dataSync()),
      block: blockOf(tile, padded),
      scales: {
        ...scalesOf(scaleInv, tensorAmax ? factorOf(quantized.spec, whole) : 1),
        blocks,
        lineRows,
        ...(whole === undefined ? {} : { tensorAmax: whole }),
      },
    };
  });
}

function roundUp(size: number, multiple: number): number {
  return Math.max(1, Math.ceil(size / multiple)) * multiple;
}

/** The values of a matrix in the corner of a larger one, whose other elements are zero. */
function filled({ rows, columns, values }: Matrix, [height, width]: readonly [number, number]): Float32Array {
  const all = new Float32Array(height * width);
  for (let row = 0; row < rows; row++)
    all.set(values.subarray(row * columns, (row + 1) * columns), row * width);
  return all;
}

function typed(x: Tensor<"f32">, dtype: WideDType): Tensor<WideDType> {
  return dtype === "f32" ? x : (encode(x, { format: dtype, overflow: "nonfinite" }) as Tensor<WideDType>);
}

function wide(x: Tensor<WideDType>): Float32Array {
  return x.dtype === "f32" ? (x as Tensor<"f32">).dataSync() : decode(x, { dtype: "f32" }).dataSync();
}

function blockOf(
  tile: Tile,
  [rows, columns]: readonly [number, number],
): { readonly rows: number; readonly columns: number } {
  const [tall = Number.NaN, long = Number.NaN] = tile.split("x").map(Number);
  return Number.isNaN(tall) ? { rows, columns } : { rows: tall, columns: long };
}

/** The factor that NVFP4's tensor adds to the scales of its blocks (numerics.md §5.10). */
function factorOf({ format, e4m3Max }: QuantizeSpec, amax = 0): number {
  return amax / (factsOf(format).max * e4m3Max);
}

function scalesOf(scales: Tensor, factor: number): Pick<Scales, "format" | "codes" | "values"> {
  if (scales.dtype === "f32") {
    const values = (scales as Tensor<"f32">).dataSync();
    return {
      format: "f32",
      codes: new Uint32Array(values.buffer.slice(values.byteOffset, values.byteOffset + values.byteLength)),
      values: Float64Array.from(values),
    };
  }
  return {
    format: scales.dtype as Scales["format"],
    codes: Uint32Array.from(scales.dataSync() as ArrayLike<number>),
    values: Float64Array.from(decode(scales).dataSync(), (value) => value * factor),
  };
}
