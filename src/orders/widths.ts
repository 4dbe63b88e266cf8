/** The widths of intervals, compared with tolerances with which kernels are usually tested. */
import type { AccumulatorName } from "./accumulators.js";
import { intervalOf } from "./interval.js";
import type { JudgedElement } from "./search.js";
import { acceptedWidth, TOLERANCES } from "./tolerances.js";

/** A tolerance compared with intervals. */
export interface WidthComparison {
  /** The name of the tolerance. */
  readonly tolerance: string;
  /**
   * The median over elements of the tolerance's width divided by the width of the interval. Infinity if intervals are single
   * values.
   */
  readonly ratio: number;
}

/** The number of elements whose intervals are compared. */
const SAMPLES = 300;

const medianOf = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;

/** Compares tolerances with the intervals of elements. The intervals contain values before the cast to the type of the result. */
export function widthsOf(
  elements: readonly JudgedElement[],
  accumulator: AccumulatorName,
): readonly WidthComparison[] {
  const step = Math.max(1, elements.length / SAMPLES);
  const sample = Array.from(
    { length: Math.min(SAMPLES, elements.length) },
    (_, i) => elements[Math.floor(i * step)] as JudgedElement,
  );
  const intervals = sample
    .map(({ terms, operands }) => ({ dtype: operands.dtype, ...intervalOf(terms, operands, accumulator) }))
    .filter(({ special, overflows }) => special === undefined && !overflows);
  return TOLERANCES.map((tolerance) => ({
    tolerance: tolerance.name,
    ratio: medianOf(
      intervals.map(({ dtype, exact, width }) => acceptedWidth(tolerance, dtype, exact) / width),
    ),
  }));
}
