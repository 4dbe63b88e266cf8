/** Judges the results of a kernel whose order of summation is free: by its order if the search finds it, else by intervals. */
import { ACCUMULATOR_NAMES, type AccumulatorName } from "./accumulators.js";
import { candidateOrders } from "./candidates.js";
import { contains, type ElementInterval, intervalOf } from "./interval.js";
import { areIsolated, type Place } from "./isolated.js";
import type { SummationOrder } from "./order.js";
import { type JudgedElement, type Match, type Search, searchOrder } from "./search.js";
import { type WidthComparison, widthsOf } from "./widths.js";
import { orderWords } from "./words.js";

/** The result of one call of a kernel: the elements of a matrix, row by row. */
export interface JudgedResult {
  readonly rows: number;
  readonly columns: number;
  readonly elements: readonly JudgedElement[];
  /** Whether the operands are of ordinary size, so that the widths of intervals are compared with tolerances. */
  readonly isOrdinary: boolean;
}

/** An element that a kernel got wrong. */
export interface OrderFinding extends Place {
  /** The value that the kernel returned. */
  readonly actual: number;
  /** The interval that contains the result of every order. */
  readonly interval: ElementInterval;
  /** A description of the error. */
  readonly words: string;
}

/** An order that was found, and the elements that it explains. */
export interface FoundOrder {
  /** The length of K, or undefined if the order holds for every length. */
  readonly depth?: number;
  /** A description of the order. */
  readonly words: string;
  /** The number of elements that it explains. */
  readonly elements: number;
}

/** The verdict on the results of a kernel. */
export interface OrderVerdict {
  /** Whether every element is right. */
  readonly ok: boolean;
  /** Whether an order explains every element; otherwise some elements only have to lie in their intervals. */
  readonly by: "order" | "interval";
  /** The declared accumulator. */
  readonly accumulator: AccumulatorName;
  /** The orders that were found: one order for all lengths of K, or one for each length. */
  readonly orders: readonly FoundOrder[];
  /** The number of candidate orders, the number of elements, and the number of elements that only had to lie in an interval. */
  readonly counts: { readonly candidates: number; readonly elements: number; readonly bounded: number };
  /** The number of other candidates that the inputs do not distinguish from the order. Counting stops at `MAX_OTHERS`. */
  readonly others: number;
  /** The first wrong elements, at most 8. */
  readonly findings: readonly OrderFinding[];
  /** The number of all wrong elements. */
  readonly wrong: number;
  /** The widths of intervals, compared with usual tolerances. */
  readonly widths: readonly WidthComparison[];
}

/** The number of wrong elements that a verdict lists. */
const MAX_FINDINGS = 8;
/** The maximum number of lengths of K for which separate orders are searched. */
const MAX_DEPTHS = 6;

/** Whether a kernel that declares an accumulator may have an order: the accumulator is at least as exact. */
function isAdmissible({ accumulator }: SummationOrder, declared: AccumulatorName): boolean {
  const exactness: readonly AccumulatorName[] = [
    "f64",
    "f32",
    "tensor-core",
    "hopper-fp8",
    "hopper-fp8-fast",
  ];
  return accumulator !== undefined && exactness.indexOf(accumulator) <= exactness.indexOf(declared);
}

/** An element with its position. */
interface PositionedElement {
  readonly element: JudgedElement;
  readonly position: Place;
}

const isFiniteTerms = ({ terms: { x, w, scales } }: JudgedElement): boolean =>
  [x, w, ...(scales ? [scales.x, scales.w] : [])].every((values) =>
    Array.prototype.every.call(values, Number.isFinite),
  );

function positionedElementsOf(results: readonly JudgedResult[]): readonly PositionedElement[] {
  return results.flatMap(({ columns, elements }, result) =>
    elements.map((element, i) => ({
      element,
      position: { result, row: Math.floor(i / columns), column: i % columns },
    })),
  );
}

/**
 * The candidate orders of a group of elements. `admitted` selects the orders that the declaration admits, or the orders that it
 * does not admit.
 */
function ordersOf(
  elements: readonly PositionedElement[],
  declared: AccumulatorName,
  admitted: boolean,
): readonly SummationOrder[] {
  const depth = elements.reduce((maximum, { element }) => Math.max(maximum, element.terms.x.length), 0);
  const scaleLength = elements[0]?.element.terms.scales?.length ?? 0;
  return candidateOrders({ depth, scaleLength }).filter(
    (order) => isAdmissible(order, declared) === admitted,
  );
}

/**
 * Searches the admitted orders. For the group of all elements, also searches the orders that the kernel would have to declare, so
 * that a message can name the order.
 */
function searchGroup(
  positionedElements: readonly PositionedElement[],
  declared: AccumulatorName,
  isWhole: boolean,
): Search {
  const elements = positionedElements.map(({ element }) => element);
  const admitted = searchOrder(ordersOf(positionedElements, declared, true), elements);
  if (!isWhole || admitted.best?.misses.length === 0) return admitted;
  const inadmissible = searchOrder(ordersOf(positionedElements, declared, false), elements);
  const candidateCount = admitted.candidateCount + inadmissible.candidateCount;
  return inadmissible.best?.misses.length === 0
    ? { ...inadmissible, candidateCount }
    : { ...admitted, candidateCount };
}

/** Judges elements one by one. */
class Judgement {
  readonly findings: OrderFinding[] = [];
  wrongCount = 0;
  boundedCount = 0;

  constructor(private readonly accumulator: AccumulatorName) {}

  /** Requires elements to lie in their intervals. */
  bound(elements: readonly PositionedElement[]): void {
    this.boundedCount += elements.length;
    for (const { element, position } of elements) {
      const interval = intervalOf(element.terms, element.operands, this.accumulator);
      if (!contains(interval, element.actual)) this.#add(element, position, interval, boundWords(interval));
    }
  }

  /** Reports elements that contradict an order. */
  refuse(elements: readonly PositionedElement[], reason: string): void {
    for (const { element, position } of elements)
      this.#add(element, position, intervalOf(element.terms, element.operands, this.accumulator), reason);
  }

  #add({ actual }: JudgedElement, position: Place, interval: ElementInterval, reason: string): void {
    this.wrongCount++;
    if (this.findings.length < MAX_FINDINGS)
      this.findings.push({ ...position, actual, interval, words: reason });
  }
}

function boundWords({ special, low, high }: ElementInterval): string {
  if (special !== undefined) return `every order gives ${special}`;
  return low === high ? `every order gives ${low}` : `every order gives a value from ${low} to ${high}`;
}

/**
 * Judges results of a kernel. First searches one order that explains all elements, then one for each length of K. Elements that
 * no order explains, and elements with NaN or infinities among their operands, have to lie in their intervals. Elements that
 * differ by themselves from the order of all others are wrong.
 */
export function judgeResults(results: readonly JudgedResult[], accumulator: AccumulatorName): OrderVerdict {
  const positionedElements = positionedElementsOf(results);
  const finite = positionedElements.filter(({ element }) => isFiniteTerms(element));
  const judgement = new Judgement(accumulator);
  judgement.bound(positionedElements.filter(({ element }) => !isFiniteTerms(element)));
  const special = judgement.boundedCount;
  const state = { candidates: 0, others: 0, orders: [] as FoundOrder[], judgement, accumulator };
  if (finite.length > 0 && !tryGroup(finite, undefined, state)) {
    judgement.bound(finite);
    if (judgement.wrongCount === 0) tryDepths(finite, state);
  }
  const { findings, wrongCount, boundedCount } = judgement;
  const ordinary = results.filter(({ isOrdinary }) => isOrdinary).flatMap(({ elements }) => elements);
  return {
    ok: wrongCount === 0,
    by: boundedCount === special && finite.length > 0 ? "order" : "interval",
    accumulator,
    orders: state.orders,
    counts: { candidates: state.candidates, elements: positionedElements.length, bounded: boundedCount },
    others: state.others,
    findings,
    wrong: wrongCount,
    widths: widthsOf(ordinary, accumulator),
  };
}

/** The results of the search so far. */
interface State {
  candidates: number;
  others: number;
  readonly orders: FoundOrder[];
  readonly judgement: Judgement;
  readonly accumulator: AccumulatorName;
}

/** Judges a group of elements by an order. Returns false if no order explains them. */
function tryGroup(group: readonly PositionedElement[], depth: number | undefined, state: State): boolean {
  const {
    best,
    candidateCount,
    others: otherCount,
  } = searchGroup(group, state.accumulator, depth === undefined);
  state.candidates = Math.max(state.candidates, candidateCount);
  if (!best) return false;
  const missElements = best.misses.map((i) => group[i] as PositionedElement);
  const isRight = missElements.length === 0 || hasIsolatedMisses(best, group);
  if (!isRight) return false;
  const description = orderWords(best.order, best.epilogue);
  state.others = Math.max(state.others, otherCount);
  state.orders.push({
    ...(depth === undefined ? {} : { depth }),
    words: description,
    elements: group.length - missElements.length,
  });
  const { judgement, accumulator } = state;
  if (!isAdmissible(best.order, accumulator))
    judgement.refuse(
      group,
      `the kernel's order is ${description}; accumulator ${accumulator} is declared${declarationHint(best.order)}`,
    );
  judgement.refuse(missElements, "the order of all other elements gives other bits");
  return true;
}

/**
 * Judges the elements of each length of K by a separate order. Called if no order explains all elements and all lie in their
 * intervals.
 */
function tryDepths(finite: readonly PositionedElement[], state: State): void {
  const depths = [...new Set(finite.map(({ element }) => element.terms.x.length))].sort((a, b) => b - a);
  for (const depth of depths.slice(0, MAX_DEPTHS)) {
    const group = finite.filter(({ element }) => element.terms.x.length === depth);
    if (tryGroup(group, depth, state)) state.judgement.boundedCount -= group.length;
  }
}

const hasIsolatedMisses = (match: Match, group: readonly PositionedElement[]): boolean =>
  areIsolated(
    match,
    group.map(({ element }) => element),
    group.map(({ position }) => position),
  );

/** Names the declaration that would admit an order. */
function declarationHint(order: SummationOrder): string {
  const name = ACCUMULATOR_NAMES.find((each) => each === order.accumulator);
  return name ? ` (accumulator ${name} would admit it)` : ", and no accumulator admits it";
}
