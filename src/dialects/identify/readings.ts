/** The ways to read stored bytes as one code for each element and one scale for each block. */
import { DTypeError } from "../../errors.js";
import {
  BLOCK_FORMATS,
  type BlockFormat,
  type BlockFormatName,
  blockFormat,
  isTensorWide,
  type Tile,
} from "../../formats/block.js";
import { factsOf, hasPowersOnly, isScalarFormat, valueOfCode } from "../../formats/derive.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { asBytes } from "../../tensor/data.js";
import { scaleLines } from "../../tensor/geometry.js";
import { unpackFour, unpackSix } from "../../tensor/packed.js";
import { swizzledIndex } from "../../tensor/places.js";
import {
  asMatrix,
  type DType,
  isWide,
  roundUp,
  type Shape,
  storageBits,
  type WideDType,
} from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { scaleValue } from "../plain.js";

/**
 * How codes are packed in bytes. `halves`: the low nibbles hold the first half of a block of 32 (or 16), the high nibbles the
 * second. `plus 8`: an i32 holds eight 4-bit integers from the low bits up, each plus 8.
 */
export type CodePacking =
  | "byte each"
  | "low nibble first"
  | "high nibble first"
  | "halves of 32"
  | "halves of 16"
  | "eight in a word, plus 8"
  | "six bits";

/** One way to read the codes, and the result. */
export interface CodeReading {
  readonly format: ScalarFormat;
  readonly packing: CodePacking;
  /** Whether the transpose is stored. */
  readonly transposed: boolean;
  /** A code for each element of the matrix [rows, columns]. */
  readonly codes: Uint8Array;
}

/** The memory layout of the scale matrix. */
export type ScaleArrangement = "plain" | "transposed" | "padded" | "padded, transposed" | "swizzled";

/** Whether the stored number is the scale or its reciprocal. */
export type ScaleForm = "scale" | "reciprocal";

/** One way to read the scales, and the result. */
export interface ScaleReading {
  readonly quantizer: BlockFormatName;
  readonly tile: Tile;
  readonly arrangement: ScaleArrangement;
  readonly form: ScaleForm;
  /** A code or an f32 for each scale, in the order of `PlainQuantized`. */
  readonly scales: Uint8Array | Float32Array;
}

/** Unpacks the codes, one for each stored element. */
const UNPACK: Readonly<Record<CodePacking, (bytes: Uint8Array) => Uint8Array>> = {
  "byte each": (bytes) => bytes,
  "low nibble first": unpackFour,
  "high nibble first": (bytes) => unpackFour(bytes.map((byte) => (byte >> 4) | ((byte & 15) << 4))),
  "halves of 32": (bytes) => halves(bytes, 16),
  "halves of 16": (bytes) => halves(bytes, 8),
  "eight in a word, plus 8": (bytes) => unpackFour(bytes).map((code) => code ^ 8),
  "six bits": unpackSix,
};

function halves(bytes: Uint8Array, size: number): Uint8Array {
  const out = new Uint8Array(2 * bytes.length);
  bytes.forEach((byte, i) => {
    const at = Math.floor(i / size) * 2 * size + (i % size);
    out[at] = byte & 15;
    out[at + size] = byte >> 4;
  });
  return out;
}

const PACKED_FOUR = ["low nibble first", "high nibble first", "halves of 32", "halves of 16"] as const;
const FORMATS = [...new Set(Object.values(BLOCK_FORMATS).flatMap(({ elements }) => elements))];

/** The formats and packings that fit `stored` for `count` elements. */
function packingsOf(
  dtype: DType,
  bytes: Uint8Array,
  count: number,
): readonly (readonly [ScalarFormat, CodePacking])[] {
  if (dtype === "i32") return bytes.length === count / 2 ? [["int4", "eight in a word, plus 8"]] : [];
  const named = FORMATS.find((format) => format === dtype);
  if (named && storageBits(named) === 4) return PACKED_FOUR.map((packing) => [named, packing] as const);
  if (named) return [[named, "byte each"]];
  if (bytes.length === count / 2)
    return FORMATS.filter((format) => storageBits(format) === 4).flatMap((format) =>
      PACKED_FOUR.map((packing) => [format, packing] as const),
    );
  if (bytes.length === (count * 3) / 4)
    return [
      ["e2m3", "six bits"],
      ["e3m2", "six bits"],
    ];
  if (bytes.length !== count) return [];
  const largest = bytes.reduce((most, byte) => Math.max(most, byte), 0);
  return FORMATS.filter((format) => largest < 2 ** factsOf(format).bits).map(
    (format) => [format, "byte each"] as const,
  );
}

function transpose<T extends Uint8Array | Float32Array>(from: T, rows: number, columns: number): T {
  const out = from.slice() as T;
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) out[r * columns + c] = from[c * rows + r] as number;
  return out;
}

/** Whether a shape fits the matrix [rows, ...], its transpose, or both. */
function orientations(shape: Shape, [rows, columns]: readonly [number, number]): readonly boolean[] {
  const [down] = asMatrix(shape);
  const fits = [down === rows, down === columns];
  return fits[0] || fits[1] ? [false, true].filter((turned) => fits[turned ? 1 : 0]) : [false, true];
}

/** Throws `DTypeError` unless the tensor holds codes of at most eight bits. */
export function requireCodes(stored: Tensor): void {
  if (["u8", "i32", ...FORMATS].includes(stored.dtype)) return;
  throw new DTypeError(
    `identifyDialect: codes is ${stored.dtype}; give u8, i32, or one of ${FORMATS.join(", ")}`,
  );
}

/** Every way to read `stored` as codes of a matrix of this size. Waits for the device. */
export function codeReadings(
  stored: Tensor,
  size: readonly [rows: number, columns: number],
): readonly CodeReading[] {
  const [rows, columns] = size;
  const bytes = asBytes(stored.dataSync());
  const seen: CodeReading[] = [];
  for (const [format, packing] of packingsOf(stored.dtype, bytes, rows * columns)) {
    const block = packing === "halves of 32" ? 32 : packing === "halves of 16" ? 16 : 1;
    for (const transposed of orientations(stored.shape, size)) {
      if ((transposed ? rows : columns) % block !== 0) continue;
      const lines = UNPACK[packing](bytes);
      if (lines.length !== rows * columns) continue;
      const codes = transposed ? transpose(lines, rows, columns) : lines;
      seen.push({ format, packing, transposed, codes });
    }
  }
  return seen;
}

/**
 * A layout for `down` lines of `across` blocks: the index of the scale of line i and block j, and the number of stored scales.
 */
interface Arrangement {
  readonly size: (down: number, across: number) => number;
  readonly at: (i: number, j: number, down: number, across: number) => number;
}

const ARRANGEMENTS: Readonly<Record<ScaleArrangement, readonly Arrangement[]>> = {
  plain: [{ size: (d, a) => d * a, at: (i, j, _, a) => i * a + j }],
  transposed: [{ size: (d, a) => d * a, at: (i, j, d) => j * d + i }],
  padded: [
    { size: (d, a) => roundUp(d, 128) * roundUp(a, 4), at: (i, j, _, a) => i * roundUp(a, 4) + j },
    { size: (d, a) => d * roundUp(a, 4), at: (i, j, _, a) => i * roundUp(a, 4) + j },
  ],
  "padded, transposed": [{ size: (d, a) => a * roundUp(d, 4), at: (i, j, d) => j * roundUp(d, 4) + i }],
  swizzled: [{ size: (d, a) => roundUp(d, 128) * roundUp(a, 4), at: (i, j, _, a) => swizzledIndex(i, j, a) }],
};

const NAMES = Object.keys(ARRANGEMENTS) as readonly ScaleArrangement[];

/** Reads stored scales as the type of a quantizer's scales: its codes, or f32. Undefined if the types do not fit. */
function asScales(stored: Tensor, type: BlockFormat["scale"]): Uint8Array | Float32Array | undefined {
  const { dtype } = stored;
  if (isWide(dtype)) {
    const values = wideValues(stored, dtype);
    if (type === "f32") return values;
    const codes = Array.from(values, (value) => Math.log2(value) + 127);
    const isPower = (code: number): boolean => Number.isInteger(code) && code >= 0 && code <= 254;
    return hasPowersOnly(type) && codes.every(isPower) ? Uint8Array.from(codes) : undefined;
  }
  const bytes = stored.dataSync();
  if (!(bytes instanceof Uint8Array)) return undefined;
  if (dtype === type || (dtype === "u8" && type !== "f32")) return bytes;
  const arePowers = dtype === "u8" || (isScalarFormat(dtype) && hasPowersOnly(dtype));
  return type === "f32" && arePowers
    ? Float32Array.from(bytes, (code) => scaleValue("e8m0", code))
    : undefined;
}

/** The values of an f32, bf16 or f16 tensor. */
function wideValues(x: Tensor, dtype: WideDType): Float32Array {
  const data = x.dataSync();
  if (dtype === "f32" || data instanceof Float32Array) return data as Float32Array;
  return Float32Array.from(data as Uint16Array, (code) => valueOfCode(dtype, code));
}

function reciprocals(scales: Uint8Array | Float32Array): Uint8Array | Float32Array | undefined {
  if (scales instanceof Float32Array) return scales;
  return scales.every((code) => code < 255) ? scales.map((code) => 254 - code) : undefined;
}

/** Every way to read `stored` as scales of this quantizer. Reciprocal f32 scales are returned as stored, which is 1/s rounded. */
export function scaleReadings(
  stored: Tensor,
  quantizer: BlockFormatName,
  tile: Tile,
  size: readonly [rows: number, columns: number],
): readonly ScaleReading[] {
  const { scale: type } = blockFormat(quantizer);
  const all = asScales(stored, type);
  if (!all) return [];
  const [down, across] = scaleLines({ quantizer, tile }, size, "rowwise");
  const isLine = down === 1 || across === 1 || isTensorWide(tile);
  const readings: ScaleReading[] = [];
  for (const arrangement of NAMES) {
    const row = ARRANGEMENTS[arrangement].find(({ size }) => size(down, across) === all.length);
    if (!row || (arrangement !== "plain" && isLine && all.length === down * across)) continue;
    const scales = all.slice(0, down * across) as Uint8Array | Float32Array;
    for (let i = 0; i < down; i++)
      for (let j = 0; j < across; j++) scales[i * across + j] = all[row.at(i, j, down, across)] as number;
    readings.push({ quantizer, tile, arrangement, form: "scale", scales });
    const inverse = type === "f32" || hasPowersOnly(type) ? reciprocals(scales) : undefined;
    if (inverse) readings.push({ quantizer, tile, arrangement, form: "reciprocal", scales: inverse });
  }
  return readings;
}
