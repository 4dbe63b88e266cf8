/** Statistics of a quantized weight, in one pass over its codes. */
import { elementCount } from "../../../tensor/shape.js";
import type { Kernels, Place } from "../kernels/kernels.js";
import { byteMagnitudes, integerMagnitudes, nibbleMagnitudes } from "../kernels/magnitudes.js";
import { CODE_TYPES, type CodeTypeName } from "../stored/code-types.js";
import { type Codes, codeRows, packedRows } from "../stored/rows.js";
import type { Scales } from "../stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../stored/weight.js";
import { Correlation } from "./correlation.js";

/** What the scales of a weight are. */
export interface ScaleStatistics {
  readonly count: number;
  /** The least and the largest finite scale; NaN if there is none. */
  readonly min: number;
  readonly max: number;
  readonly zero: number;
  readonly negative: number;
  readonly notFinite: number;
  /** The number of finite positive scales that are powers of two. */
  readonly powersOfTwo: number;
}

/** What the codes of a weight and the values are. */
export interface Statistics {
  readonly elements: number;
  /** How often each code occurs. */
  readonly counts: Float64Array;
  readonly codesUsed: number;
  /** The numbers of elements that are zero, that have the largest magnitude of a code, and that are NaN. */
  readonly zeros: number;
  readonly saturated: number;
  readonly nans: number;
  readonly scale: ScaleStatistics;
  /** The largest magnitude of values, and their root mean square. */
  readonly amax: number;
  readonly rms: number;
  /** The same, if all scales of blocks were their reciprocals. */
  readonly inverse: { readonly amax: number; readonly rms: number };
  /** The numbers of blocks: with codes other than zero, that reach the largest code, with the scale zero, with codes of NaN. */
  readonly blocks: {
    readonly nonzero: number;
    readonly full: number;
    readonly zeroScaled: number;
    readonly withNaN: number;
  };
  /** The numbers of rows with codes other than zero, and of those that reach the largest code. */
  readonly rows: { readonly nonzero: number; readonly full: number };
  /** How the logarithms of scales and of root mean squares of codes go together, block by block; as stored, and as relaid. */
  readonly correlation: Correlation;
  readonly relaidCorrelation: Correlation;
}

/** The f64 sums of assembly/checkpoints/statistics.ts, by their index. */
const SUM = {
  nonzero: 0,
  full: 1,
  zeroScaled: 2,
  withNaN: 3,
  rowsNonzero: 4,
  rowsFull: 5,
  amax: 6,
  squares: 7,
  inverseAmax: 8,
  inverseSquares: 9,
  stored: 10,
  relaid: 18,
  count: 26,
} as const;

/** The most elements of a group of codes of four bits whose sum of squares the kernel holds in 16 bits. */
const MAX_NIBBLES = 448;

/** Reads all codes of a weight and computes their statistics. `onBytes` is called with the number of bytes read. */
export async function statisticsOf(
  kernels: Kernels,
  weight: QuantizedWeight,
  scales: Scales,
  onBytes: (count: number) => void = () => {},
): Promise<Statistics> {
  const { values, max } = CODE_TYPES[weight.type];
  const elements = elementCount(weight.shape);
  const sums = kernels.place("sums", 8 * SUM.count);
  sums.bytes.fill(0);
  const counts =
    elements === 0
      ? new Float64Array(values.length)
      : await countCodes(kernels, weight, scales, sums.address, onBytes);
  const of = kernels.doubles(sums.address, SUM.count);
  const sum = (name: keyof typeof SUM): number => of[SUM[name]] as number;
  const rms = (squares: number): number => (elements === 0 ? 0 : Math.sqrt(squares / elements));
  const countIf = (test: (value: number) => boolean): number =>
    counts.reduce((total, each, code) => (test(values[code] ?? 0) ? total + each : total), 0);
  return {
    elements,
    counts,
    codesUsed: counts.filter((each) => each > 0).length,
    zeros: countIf((value) => value === 0),
    saturated: countIf((value) => Math.abs(value) >= max),
    nans: countIf(Number.isNaN),
    scale: scaleStatistics(scales.values),
    rows: { nonzero: sum("rowsNonzero"), full: sum("rowsFull") },
    amax: sum("amax"),
    rms: rms(sum("squares")),
    inverse: { amax: sum("inverseAmax"), rms: rms(sum("inverseSquares")) },
    blocks: {
      nonzero: sum("nonzero"),
      full: sum("full"),
      zeroScaled: sum("zeroScaled"),
      withNaN: sum("withNaN"),
    },
    correlation: new Correlation(of.slice(SUM.stored, SUM.relaid)),
    relaidCorrelation: new Correlation(of.slice(SUM.relaid, SUM.count)),
  };
}

/** How often each code of a weight occurs. Adds to the sums at an address. */
async function countCodes(
  kernels: Kernels,
  weight: QuantizedWeight,
  scales: Scales,
  sums: number,
  onBytes: (count: number) => void,
): Promise<Float64Array> {
  const { type, geometry, shape, unpacked } = weight;
  const { bits, values, max } = CODE_TYPES[type];
  const [, height, columns] = matricesOf(shape);
  const { kind, grid } = geometry;
  const [tall, wide] = geometry.block;
  const isWhole = grid[1] * wide === columns;
  const inPairs =
    !unpacked &&
    bits === 4 &&
    kind === "group" &&
    tall === 1 &&
    wide % 16 === 0 &&
    wide <= MAX_NIBBLES &&
    isWhole;
  const magnitudes = hasOffset(type) ? integerMagnitudes(max) : byteMagnitudes(type);
  const counts = new Counts(kernels, inPairs ? 256 : values.length);
  const shared = {
    global: scales.global,
    divides: Number(scales.divides),
    kind: kernels.put("magnitudes", inPairs ? nibbleMagnitudes(type) : magnitudes),
    sums,
  };
  const own = kernels.put("block scales", scales.values);
  const other = scales.relaid ? kernels.put("relaid scales", scales.relaid) : 0;
  const squares = kernels.place("block squares", 8 * grid[1]);
  const ranks = kernels.place("block ranks", 2 * grid[1]);
  squares.bytes.fill(0);
  ranks.bytes.fill(0);
  const blockScales = (matrix: number, row: number) => {
    const first = kind === "whole" ? 0 : 4 * (matrix * grid[0] + Math.floor(row / tall)) * grid[1];
    return { scales: own + first, relaid: other === 0 ? 0 : other + first };
  };
  if (inPairs)
    for await (const { matrix, row, rows, bytes } of packedRows(kernels, weight)) {
      const { address: codes } = bytes;
      counts.add(codes, bytes.bytes.length);
      const at = blockScales(matrix, row);
      kernels.call("nibbleStatistics", { ...shared, ...at, codes, rows, wide, blocks: grid[1] });
      onBytes(bytes.bytes.length);
    }
  else
    for await (const { matrix, row, rows, codes, read } of codesInBytes(kernels, weight, counts)) {
      kernels.call("byteStatistics", {
        ...shared,
        ...blockScales(matrix, row),
        codes,
        rows,
        columns,
        row,
        height,
        tall,
        wide,
        blocks: grid[1],
        step: kind === "whole" ? 0 : grid[1],
        squares: squares.address,
        ranks: ranks.address,
      });
      onBytes(read);
    }
  return inPairs ? values.map((_, code) => ofHalf(counts.total, code)) : counts.total;
}

/** Whether codes are integers plus half their range. */
function hasOffset(type: CodeTypeName): boolean {
  const [least = 0] = CODE_TYPES[type].values;
  return least < 0;
}

/** Rows whose codes, or magnitudes of integers, are bytes in memory of the kernels; their codes have been counted. */
async function* codesInBytes(kernels: Kernels, weight: QuantizedWeight, counts: Counts) {
  const { type, unpacked } = weight;
  const { bits, values } = CODE_TYPES[type];
  if (bits === 8 && !unpacked) {
    for await (const { matrix, row, rows, bytes } of packedRows(kernels, weight)) {
      counts.add(bytes.address, bytes.bytes.length);
      yield { matrix, row, rows, codes: bytes.address, read: bytes.bytes.length };
    }
    return;
  }
  for await (const { matrix, row, rows, codes } of codeRows(weight)) {
    const { address, bytes } = kernels.place("codes", codes.length);
    if (hasOffset(type))
      for (let i = 0; i < codes.length; i++) bytes[i] = Math.abs(values[codes[i] as number] as number);
    else bytes.set(codes);
    counts.addEach(codes);
    yield {
      matrix,
      row,
      rows,
      codes: address,
      read: (codes.length * (unpacked ? 8 * unpacked.width : bits)) / 8,
    };
  }
}

/** How often each code occurs. */
class Counts {
  readonly total: Float64Array;
  readonly #place: Place;

  constructor(
    private readonly kernels: Kernels,
    length: number,
  ) {
    this.total = new Float64Array(length);
    this.#place = kernels.place("counts", 4 * 4 * 256);
  }

  /** Counts bytes at an address. */
  add(codes: number, count: number): void {
    this.#place.bytes.fill(0);
    const counts = this.#place.address;
    this.kernels.call("countBlock", { codes, rows: 1, width: count, pitch: count, counts });
    const each = new Uint32Array(this.#place.bytes.slice().buffer);
    for (let i = 0; i < each.length; i++) this.#more(i & 255, each[i] as number);
  }

  /** Counts codes one by one. */
  addEach(codes: Codes): void {
    for (let i = 0; i < codes.length; i++) this.#more(codes[i] as number, 1);
  }

  #more(code: number, count: number): void {
    if (code < this.total.length) this.total[code] = (this.total[code] as number) + count;
  }
}

/** How often a code of four bits occurs in bytes of two. */
function ofHalf(bytes: Float64Array, code: number): number {
  return bytes.reduce(
    (sum, count, byte) => sum + count * (Number((byte & 15) === code) + Number(byte >> 4 === code)),
    0,
  );
}

/** Statistics of scales, which their order does not change: -0 is below 0. */
export function scaleStatistics(values: Float32Array): ScaleStatistics {
  let [min, max] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  let [zero, negative, notFinite, powersOfTwo] = [0, 0, 0, 0];
  for (const value of values) {
    if (!Number.isFinite(value)) notFinite++;
    else {
      // a comparison would keep the first of the two zeros
      min = Math.min(min, value);
      max = Math.max(max, value);
      if (value === 0) zero++;
      else if (value < 0) negative++;
      else if (isPowerOfTwo(value)) powersOfTwo++;
    }
  }
  const none = max < min;
  return {
    count: values.length,
    min: none ? Number.NaN : min,
    max: none ? Number.NaN : max,
    zero,
    negative,
    notFinite,
    powersOfTwo,
  };
}

const WORD = new Uint32Array(1);
const FLOAT = new Float32Array(WORD.buffer);

/** Whether a positive f32 is a power of two. */
function isPowerOfTwo(value: number): boolean {
  FLOAT[0] = value;
  const word = WORD[0] ?? 0;
  const fraction = word & 0x7fffff;
  return word >= 0x800000 ? fraction === 0 : (fraction & (fraction - 1)) === 0;
}
