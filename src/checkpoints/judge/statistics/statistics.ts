/** Statistics of a quantized weight, in one pass over its codes. */
import { elementCount } from "../../../tensor/shape.js";
import type { Kernels } from "../../kernels/kernels.js";
import {
  byteMagnitudes,
  integerMagnitudes,
  nibbleLogarithms,
  nibbleMagnitudes,
  ranksOf,
} from "../../kernels/magnitudes.js";
import type { ByteScales } from "../../stored/byte-scales.js";
import { codeRows, packedRows } from "../../stored/code-rows.js";
import { CODE_TYPES, type CodeTypeName } from "../../stored/code-types.js";
import type { Scales } from "../../stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../../stored/weight.js";
import { ByteSums } from "./byte-sums.js";
import { CodeCounts } from "./code-counts.js";
import { Correlation } from "./correlation.js";
import { ScaleCounter, type ScaleStatistics } from "./scale-counter.js";
import { SUM } from "./sum-indices.js";
import { correlateWithinRows, type WithinRows } from "./within-rows.js";

/** Statistics of the codes and values of a weight. */
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
  /** Whether all scales look like E8M0 bytes that were converted to integers. */
  readonly areExponents: boolean;
  /** The largest magnitude and the root mean square of the values. */
  readonly amax: number;
  readonly rms: number;
  /** The same under reciprocal block scales. */
  readonly inverse: { readonly amax: number; readonly rms: number };
  /** The numbers of blocks that have a nonzero code, that reach the largest code, whose scale is zero, that have a NaN code. */
  readonly blocks: {
    readonly nonzero: number;
    readonly full: number;
    readonly zeroScaled: number;
    readonly withNaN: number;
  };
  /** The numbers of rows that have a nonzero code, and that reach the largest code. */
  readonly rows: { readonly nonzero: number; readonly full: number };
  /** The correlation of log scale and log RMS of codes, over blocks: as stored, and in the opposite layout of scales. */
  readonly correlation: Correlation;
  readonly relaidCorrelation: Correlation;
  /** Correlations within rows and columns, over the first blocks. Absent if the correlation over all blocks is clear. */
  readonly withinRows?: WithinRows;
}

/** Up to this coefficient, the correlation over all blocks shows that each block has its scale. */
const CLEAR = -0.3;

/** The largest group of 4-bit codes whose sum of squares fits the kernel's 16 bits. */
const MAX_NIBBLES = 448;

/** Options of `statisticsOf`. */
interface StatisticsOptions {
  /** Whether to leave `counts` and the fields computed from it at 0, for code types without NaN. Default: false. */
  readonly isUncounted?: boolean;
}

/** Reads all codes of a weight and computes their statistics. `onBytes` is called with the number of bytes read. */
export async function statisticsOf(
  kernels: Kernels,
  weight: QuantizedWeight,
  scales: Scales | ByteScales,
  onBytes: (count: number) => void = () => {},
  { isUncounted = false }: StatisticsOptions = {},
): Promise<Statistics> {
  const { values, max } = CODE_TYPES[weight.type];
  const elements = elementCount(weight.shape);
  const sums = kernels.place("sums", 8 * SUM.count);
  sums.bytes.fill(0);
  const scaleCounter = new ScaleCounter();
  if ("bytes" in scales) countByteScales(kernels, weight, scales, scaleCounter);
  else for (const value of scales.values) scaleCounter.add(value);
  const counts =
    elements === 0
      ? new Float64Array(values.length)
      : await countCodes(kernels, weight, scales, sums.address, onBytes, isUncounted);
  const doubles = kernels.doubles(sums.address, SUM.count);
  const sum = (name: keyof typeof SUM): number => doubles[SUM[name]] as number;
  const rms = (squares: number): number => (elements === 0 ? 0 : Math.sqrt(squares / elements));
  const countIf = (test: (value: number) => boolean): number =>
    counts.reduce((total, each, code) => (test(values[code] ?? 0) ? total + each : total), 0);
  const correlation = new Correlation(doubles.slice(SUM.stored, SUM.relaid));
  const relaidCorrelation = new Correlation(doubles.slice(SUM.relaid, SUM.count));
  const found = {
    elements,
    counts,
    codesUsed: counts.filter((each) => each > 0).length,
    zeros: countIf((value) => value === 0),
    saturated: countIf((value) => Math.abs(value) >= max),
    nans: countIf(Number.isNaN),
    scale: scaleCounter.statistics,
    areExponents: scaleCounter.areExponents,
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
    correlation,
    relaidCorrelation,
  };
  const withinRows =
    correlation.coefficient > CLEAR && elements > 0 ? await correlateWithinRows(weight, scales) : undefined;
  return withinRows ? { ...found, withinRows } : found;
}

/** Adds one-byte scales to a counter, by the number of occurrences of each byte. */
function countByteScales(
  kernels: Kernels,
  { shape }: QuantizedWeight,
  { bytes: { address, bytes }, storedGlobals, valuesOf }: ByteScales,
  counter: ScaleCounter,
): void {
  const matrices = storedGlobals ? matricesOf(shape)[0] : 1;
  const step = bytes.length / matrices;
  for (let matrix = 0; matrix < matrices; matrix++) {
    const counts = new CodeCounts(kernels, 256);
    counts.add(address + matrix * step, step);
    const values = valuesOf(matrix);
    for (const [byte, count] of counts.total.entries())
      if (count > 0) counter.add(values[byte] as number, count);
  }
}

/** Counts each code of a weight. Adds to the sums at an address. */
async function countCodes(
  kernels: Kernels,
  weight: QuantizedWeight,
  scales: Scales | ByteScales,
  sums: number,
  onBytes: (count: number) => void,
  isUncounted: boolean,
): Promise<Float64Array> {
  const { type, geometry, shape, unpacked } = weight;
  const { bits, values, max } = CODE_TYPES[type];
  const [, height, columns] = matricesOf(shape);
  const { grid } = geometry;
  const [tall, wide] = geometry.block;
  const isWhole = grid[1] * wide === columns;
  const inPairs =
    !unpacked &&
    bits === 4 &&
    geometry.kind === "group" &&
    tall === 1 &&
    wide % 16 === 0 &&
    wide <= MAX_NIBBLES &&
    isWhole;
  const magnitudes = hasOffset(type) ? integerMagnitudes(max) : byteMagnitudes(type);
  const counts = new CodeCounts(kernels, inPairs ? 256 : values.length);
  const kind = inPairs ? nibbleMagnitudes(type) : magnitudes;
  const { byteSums, ...placed } = placedScales(kernels, scales, kind);
  const shared = {
    global: scales.global,
    divides: Number(scales.divides),
    kind: kernels.put("magnitudes", kind),
    sums,
    table: byteSums?.table ?? 0,
  };
  const squares = kernels.place("block squares", 8 * grid[1]);
  const ranks = kernels.place("block ranks", 2 * grid[1]);
  squares.bytes.fill(0);
  ranks.bytes.fill(0);
  const blockScales = (matrix: number, row: number) => {
    const line = geometry.kind === "whole" ? 0 : matrix * grid[0] + Math.floor(row / tall);
    const first = placed.width * line * grid[1];
    return { scales: placed.scales + first, relaid: placed.relaid === 0 ? 0 : placed.relaid + first };
  };
  // with a global scale for each matrix, the same byte means another scale in each
  let last = 0;
  const enter = (matrix: number): void => {
    if (scales.storedGlobals && matrix !== last) byteSums?.flush(last, sums);
    last = matrix;
  };
  if (inPairs) {
    const isCounted = !isUncounted || values.some(Number.isNaN);
    const logarithms = kernels.put("logarithms", nibbleLogarithms(type, wide));
    for await (const { matrix, row, rows, bytes } of packedRows(kernels, weight)) {
      const { address: codes } = bytes;
      enter(matrix);
      if (isCounted) counts.add(codes, bytes.bytes.length);
      const at = blockScales(matrix, row);
      kernels.call("nibbleStatistics", {
        ...shared,
        ...at,
        codes,
        rows,
        wide,
        blocks: grid[1],
        logarithms,
      });
      onBytes(bytes.bytes.length);
    }
  } else
    for await (const { matrix, row, rows, codes, read } of codesInBytes(kernels, weight, counts)) {
      enter(matrix);
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
        step: geometry.kind === "whole" ? 0 : grid[1],
        squares: squares.address,
        ranks: ranks.address,
      });
      onBytes(read);
    }
  byteSums?.flush(last, sums);
  return inPairs ? values.map((_, code) => ofHalf(counts.total, code)) : counts.total;
}

/** The addresses of the scales in kernel memory, and their width in bytes. */
function placedScales(kernels: Kernels, scales: Scales | ByteScales, kind: Uint8Array) {
  if ("bytes" in scales) {
    const byteSums = new ByteSums(kernels, scales, ranksOf(kind));
    return { width: 1, scales: scales.bytes.address, relaid: scales.relaid?.address ?? 0, byteSums };
  }
  return {
    width: 4,
    scales: kernels.put("block scales", scales.values),
    relaid: scales.relaid ? kernels.put("relaid scales", scales.relaid) : 0,
    byteSums: undefined,
  };
}

/** Whether codes are integers with an offset of half their range. */
function hasOffset(type: CodeTypeName): boolean {
  const [least = 0] = CODE_TYPES[type].values;
  return least < 0;
}

/** Yields rows as bytes in kernel memory: codes, or magnitudes of integers. Counts their codes. */
async function* codesInBytes(kernels: Kernels, weight: QuantizedWeight, counts: CodeCounts) {
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

/** The number of occurrences of a 4-bit code, from counts of bytes. */
function ofHalf(bytes: Float64Array, code: number): number {
  return bytes.reduce(
    (sum, count, byte) => sum + count * (Number((byte & 15) === code) + Number(byte >> 4 === code)),
    0,
  );
}
