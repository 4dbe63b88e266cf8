/** Statistics of a tensor and of the error of its quantization. */
import { floorLog2 } from "../../explain/binary.js";
import type { CopyReads, CopyValues } from "./copy-values.js";

/** The numbers of scales by the exponent of their power of two, ascending; null stands for scales that are 0 or not finite. */
export type ScaleHistogram = readonly (readonly [exponent: number | null, count: number])[];

/** Running sums over the elements of a tensor, in the order of its elements. */
interface Sums {
  elements: number;
  nonFinite: number;
  sum: number;
  magnitudes: number;
  squares: number;
  minimum: number;
  maximum: number;
  amax: number;
  amin: number;
  underflows: number;
  overflows: number;
  errors: number;
  readonly scales: Map<number | null, number>;
}

/** How a statistic is computed from the sums, and what it reads in addition to the values before quantization. */
interface StatisticRow<T> {
  readonly reads: readonly (keyof CopyReads)[];
  readonly of: (sums: Sums) => T;
}

function row<T>(of: (sums: Sums) => T, ...reads: (keyof CopyReads)[]): StatisticRow<T> {
  return { reads, of };
}

const finite = ({ elements, nonFinite }: Sums): number => elements - nonFinite;
const mean = (sums: Sums): number => sums.sum / finite(sums);

/** Every statistic. NaN and infinities among the quantized values are counted as `nonFinite` and left out of all others. */
export const STATISTICS = {
  amax: row(({ amax }) => amax),
  min: row(({ minimum }) => minimum + 0),
  max: row(({ maximum }) => maximum + 0),
  mean: row(mean),
  std: row((sums) => Math.sqrt(Math.max(0, sums.squares / finite(sums) - mean(sums) ** 2))),
  l1Norm: row(({ magnitudes }) => magnitudes),
  l2Norm: row(({ squares }) => Math.sqrt(squares)),
  dynamicRange: row(({ amax, amin }) => (amax === 0 ? 0 : Math.log2(amax) - Math.log2(amin))),
  underflow: row((sums) => sums.underflows / sums.elements, "decoded"),
  overflow: row((sums) => sums.overflows / sums.elements, "decoded", "limits"),
  mse: row((sums) => sums.errors / finite(sums), "decoded"),
  sqnr: row(({ squares, errors }) => 10 * Math.log10(squares / errors), "decoded"),
  scales: row(
    ({ scales }): ScaleHistogram => [...scales].sort(([a], [b]) => (a ?? -Infinity) - (b ?? -Infinity)),
    "scales",
  ),
} as const satisfies Record<string, StatisticRow<number | ScaleHistogram>>;

/** The name of a statistic. */
export type StatisticName = keyof typeof STATISTICS;

/** The names of all statistics. */
export const STATISTIC_NAMES = Object.keys(STATISTICS) as readonly StatisticName[];

/** The values of statistics by name. */
export type StatisticValues = {
  readonly [S in StatisticName]?: ReturnType<(typeof STATISTICS)[S]["of"]>;
};

/** Returns the values that these statistics read. */
export function requiredReads(names: readonly StatisticName[]): CopyReads {
  const reads = new Set<keyof CopyReads>(names.flatMap((name) => [...STATISTICS[name].reads]));
  return { decoded: reads.has("decoded"), limits: reads.has("limits"), scales: reads.has("scales") };
}

/** The statistics of all values that were added. */
export class TensorStatistics {
  readonly #sums: Sums = {
    ...{ elements: 0, nonFinite: 0, sum: 0, magnitudes: 0, squares: 0 },
    ...{ minimum: Infinity, maximum: -Infinity, amax: 0, amin: Infinity },
    ...{ underflows: 0, overflows: 0, errors: 0 },
    scales: new Map(),
  };

  get elements(): number {
    return this.#sums.elements;
  }

  get nonFinite(): number {
    return this.#sums.nonFinite;
  }

  add({ source, decoded, limits, scales }: CopyValues): void {
    addValues(this.#sums, source);
    if (decoded) addErrors(this.#sums, source, decoded);
    if (decoded && limits) addOverflows(this.#sums, source, decoded, limits);
    for (const scale of scales ?? []) {
      const exponent = Number.isFinite(scale) && scale !== 0 ? floorLog2(scale) : null;
      this.#sums.scales.set(exponent, (this.#sums.scales.get(exponent) ?? 0) + 1);
    }
  }

  values(names: readonly StatisticName[]): StatisticValues {
    return Object.fromEntries(names.map((name) => [name, STATISTICS[name].of(this.#sums)]));
  }
}

function addValues(sums: Sums, source: Float32Array): void {
  sums.elements += source.length;
  for (let i = 0; i < source.length; i++) {
    const x = source[i] as number;
    if (!Number.isFinite(x)) {
      sums.nonFinite++;
      continue;
    }
    const magnitude = Math.abs(x);
    sums.sum += x;
    sums.magnitudes += magnitude;
    sums.squares += x * x;
    if (x < sums.minimum) sums.minimum = x;
    if (x > sums.maximum) sums.maximum = x;
    if (magnitude > sums.amax) sums.amax = magnitude;
    if (magnitude !== 0 && magnitude < sums.amin) sums.amin = magnitude;
  }
}

/** Adds squares of errors, and counts the elements other than 0 whose code is 0. */
function addErrors(sums: Sums, source: Float32Array, decodedValues: Float32Array): void {
  for (let i = 0; i < source.length; i++) {
    const [x, y] = [source[i] as number, decodedValues[i] as number];
    if (!Number.isFinite(x)) continue;
    sums.errors += (x - y) ** 2;
    if (x !== 0 && y === 0) sums.underflows++;
  }
}

/**
 * Counts the elements beyond the largest value under their scale, unless their code has at least their magnitude. Under a scale
 * of 0 every element underflows instead.
 */
function addOverflows(
  sums: Sums,
  source: Float32Array,
  decodedValues: Float32Array,
  limits: Float32Array,
): void {
  for (let i = 0; i < source.length; i++) {
    const magnitude = Math.abs(source[i] as number);
    const [y, limit] = [Math.abs(decodedValues[i] as number), Math.abs(limits[i] as number)];
    const isKept = y >= magnitude && y !== Infinity;
    if (limit > 0 && magnitude > limit && !isKept) sums.overflows++;
  }
}
