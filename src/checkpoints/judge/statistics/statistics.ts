/**
 * Computes statistics of a quantized weight in one pass over its codes. A second pass follows if the first pass does not confirm
 * the scale layout.
 */
import { elementCount } from "../../../tensor/shape.js";
import type { Kernels } from "../../kernels/kernels.js";
import { type ByteScales, countScaleBytes, histogram } from "../../stored/byte-scales.js";
import { CODE_TYPES } from "../../stored/code-types.js";
import type { Scales } from "../../stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../../stored/weight.js";
import { type OnCodes, sumCodes } from "./code-sums.js";
import { Correlation } from "./correlation.js";
import { ScaleCounter, type ScaleStatistics } from "./scale-counter.js";
import type { ScaleTally } from "./scale-entries.js";
import { SUM } from "./sum-indices.js";
import { correlateWithinRows, type WithinRows } from "./within-rows.js";

/** Statistics of the codes and values of a weight. */
export interface Statistics {
  readonly elements: number;
  /** The number of occurrences of each code. */
  readonly counts: Float64Array;
  readonly codesUsed: number;
  /** The number of elements with the value zero, with the largest magnitude of a code, and with a NaN code. */
  readonly zeros: number;
  readonly saturated: number;
  readonly nans: number;
  readonly scale: ScaleStatistics;
  /** Whether all scales look like E8M0 bytes that were converted to integers. */
  readonly areExponents: boolean;
  /** The largest magnitude and the root mean square of the values. */
  readonly amax: number;
  readonly rms: number;
  /** `amax` and `rms` under reciprocal block scales. */
  readonly inverse: { readonly amax: number; readonly rms: number };
  /** The number of blocks with a nonzero code, with the largest code, with a scale of zero, and with a NaN code. */
  readonly blocks: {
    readonly nonzero: number;
    readonly full: number;
    readonly zeroScaled: number;
    readonly withNaN: number;
  };
  /** The number of rows with a nonzero code, and with the largest code. */
  readonly rows: { readonly nonzero: number; readonly full: number };
  /** The correlation of log scale and log RMS of codes, over blocks. */
  readonly correlation: Correlation;
  /** The correlation in the opposite scale layout. Absent if there is no such layout, or if `correlation` is significant. */
  readonly oppositeCorrelation?: Correlation;
  /** Correlations within rows and columns, over the first blocks. Absent if `correlation` is strong. */
  readonly withinRows?: WithinRows;
  /**
   * Tallies of 4-bit codes by scale byte. Absent if blocks are not summed by scale byte, or if each matrix has a global scale.
   */
  readonly tallies?: readonly ScaleTally[];
}

/** A negative correlation of at least this many standard errors confirms the declared scale layout. */
export const SIGNIFICANT = 3;

/** A correlation over all blocks of at most this coefficient confirms that each scale belongs to its block. */
const CLEAR = -0.3;

/** Options of `statisticsOf`. */
interface StatisticsOptions {
  /** Whether to leave `counts` and all fields that are computed from it at 0. Only for code types without NaN. Default: false. */
  readonly isUncounted?: boolean;
}

/**
 * Reads all codes of a weight once and computes their statistics. `onCodes` is called with the stored bytes of the codes, in
 * order.
 */
export async function statisticsOf(
  kernels: Kernels,
  weight: QuantizedWeight,
  scales: Scales | ByteScales,
  onCodes: OnCodes = () => {},
  { isUncounted = false }: StatisticsOptions = {},
): Promise<Statistics> {
  const { values, max } = CODE_TYPES[weight.type];
  const elements = elementCount(weight.shape);
  const scaleCounter = new ScaleCounter();
  if ("bytes" in scales) countByteScales(kernels, weight, scales, scaleCounter);
  else for (const value of scales.values) scaleCounter.add(value);
  const pass = await sumCodes(kernels, weight, scales, { onCodes, isUncounted });
  const { counts, sums: doubles, tallies } = pass;
  const sum = (name: keyof typeof SUM): number => doubles[SUM[name]] as number;
  const rms = (squares: number): number => (elements === 0 ? 0 : Math.sqrt(squares / elements));
  const countIf = (test: (value: number) => boolean): number =>
    counts.reduce((total, each, code) => (test(values[code] ?? 0) ? total + each : total), 0);
  const correlation = new Correlation(doubles.slice(SUM.pairs, SUM.count));
  const oppositeScales = correlation.significance < -SIGNIFICANT ? undefined : scalesInOppositeLayout(scales);
  const statistics = {
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
    ...(tallies ? { tallies } : {}),
  };
  const withinRows =
    correlation.coefficient > CLEAR && elements > 0
      ? await correlateWithinRows(kernels, weight, scales)
      : undefined;
  const withinRowsField = withinRows ? { withinRows } : {};
  if (!oppositeScales) return { ...statistics, ...withinRowsField };
  const { sums: oppositeSums } = await sumCodes(kernels, weight, oppositeScales, { isUncounted: true });
  return {
    ...statistics,
    ...withinRowsField,
    oppositeCorrelation: new Correlation(oppositeSums.slice(SUM.pairs, SUM.count)),
  };
}

/** The scales in the opposite layout; undefined if there is none. */
function scalesInOppositeLayout(scales: Scales | ByteScales): Scales | ByteScales | undefined {
  if ("bytes" in scales) return scales.oppositeLayout && { ...scales, bytes: scales.oppositeLayout.buffer() };
  return scales.oppositeLayout && { ...scales, values: scales.oppositeLayout };
}

/** Adds one-byte scales to a counter. The weight of a scale is the number of occurrences of its byte. */
function countByteScales(
  kernels: Kernels,
  weight: QuantizedWeight,
  { bytes: { address, bytes }, storedGlobals, valuesOf }: ByteScales,
  counter: ScaleCounter,
): void {
  const add = (counts: Float64Array, matrix: number): void => {
    const values = valuesOf(matrix);
    for (const [byte, count] of counts.entries()) {
      if (count > 0) counter.add(values[byte] as number, count);
    }
  };
  if (!storedGlobals) {
    add(countScaleBytes(kernels, weight, { address, bytes }), 0);
    return;
  }
  const [matrices] = matricesOf(weight.shape);
  const step = bytes.length / matrices;
  for (let matrix = 0; matrix < matrices; matrix++) {
    const part = {
      address: address + matrix * step,
      bytes: bytes.subarray(matrix * step, (matrix + 1) * step),
    };
    add(histogram(kernels, part), matrix);
  }
}
