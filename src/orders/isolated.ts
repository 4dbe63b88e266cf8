/**
 * Elements that are wrong although the order of all other elements is known. A kernel may sum some elements in another order, but
 * then it does so in whole rows, columns or tiles, and many of their elements differ. A single element that differs is an error.
 */
import type { SummationOrder } from "./order.js";
import { type Candidate, type JudgedElement, type Match, sameValue, valueBy } from "./search.js";

/** The position of an element: its result, row and column. */
export interface Place {
  /** The index of the result in the list of results. */
  readonly result: number;
  /** The row of the element. */
  readonly row: number;
  /** The column of the element. */
  readonly column: number;
}

/** The side of the squares in which differing elements are counted. */
const TILE = 8;
/** The minimum share of elements that another order changes, among the elements that half of the rivals change. */
const CHANGED = 1 / 2;
/** The probability below which another order does not explain an arrangement of errors. */
const CHANCE = 1e-6;

const baseOrder = {
  lanes: { count: 1, run: 1, join: "ascending" },
  block: 0,
  splits: { count: 1, tile: 1, join: "ascending" },
} as const;

/** Orders that differ from each other in most sums. */
const RIVALS: readonly SummationOrder[] = [
  { ...baseOrder, arithmetic: { kind: "fused" } },
  { ...baseOrder, arithmetic: { kind: "rounded" } },
  { ...baseOrder, arithmetic: { kind: "double" } },
  { ...baseOrder, arithmetic: { kind: "fused" }, lanes: { count: 4, run: 1, join: "halves" } },
  { ...baseOrder, arithmetic: { kind: "fused" }, block: 32 },
  { ...baseOrder, arithmetic: { kind: "rounded" }, splits: { count: 2, tile: 1, join: "ascending" } },
];

/** Whether at least half of the rivals give an element a different value than the candidate. */
function isTelling(candidate: Candidate, element: JudgedElement): boolean {
  const expected = valueBy(candidate, element);
  const { scaling } = candidate.order;
  const differingRivals = RIVALS.filter((rival) => {
    const order = scaling ? { ...rival, scaling, block: candidate.order.block } : rival;
    return !sameValue(valueBy({ ...candidate, order }, element), expected);
  });
  return 2 * differingRivals.length >= RIVALS.length;
}

/** An upper bound of the probability that at most `count` of `total` independent events of probability `CHANGED` happen. */
function chanceOf(count: number, total: number): number {
  if (total === 0) return 1;
  const share = count / total;
  if (share >= CHANGED) return 1;
  const part = (p: number, q: number): number => (p === 0 ? 0 : p * Math.log(p / q));
  return Math.exp(-total * (part(share, CHANGED) + part(1 - share, 1 - CHANGED)));
}

/** The regions on which an order may depend: rows, columns and tiles of a result. */
const REGIONS: readonly ((position: Place) => string)[] = [
  ({ result, row }) => `${result} ${row}`,
  ({ result, column }) => `${result} ${column}`,
  ({ result, row, column }) => `${result} ${Math.floor(row / TILE)} ${Math.floor(column / TILE)}`,
];

/**
 * Whether the elements that contradict the best candidate are errors. They are if their arrangement does not look like another
 * order in any kind of region.
 */
export function areIsolated(
  match: Match,
  elements: readonly JudgedElement[],
  positions: readonly Place[],
): boolean {
  if (match.misses.length === 0) return false;
  const missed = new Set(match.misses);
  return REGIONS.every((regionOf) => {
    const regions = new Set(match.misses.map((i) => regionOf(positions[i] as Place)));
    let [count, total] = [0, 0];
    for (const [i, element] of elements.entries()) {
      if (!regions.has(regionOf(positions[i] as Place)) || !isTelling(match, element)) continue;
      total++;
      if (missed.has(i)) count++;
    }
    return chanceOf(Math.max(1, count), total) < CHANCE;
  });
}
