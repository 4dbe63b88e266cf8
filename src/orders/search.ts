/** Finds the order of a kernel by exclusion: candidates that contradict an element are dropped. */
import { type EpilogueName, type EpilogueOperands, epiloguesFor, startOf, storedValue } from "./epilogues.js";
import { Evaluator } from "./evaluate.js";
import { conditionOf } from "./interval.js";
import type { SummationOrder, Terms } from "./order.js";

/** One element of a kernel's result: its terms, the operands of its epilogue, and the value that the kernel returned. */
export interface JudgedElement {
  readonly terms: Terms;
  readonly operands: EpilogueOperands;
  readonly actual: number;
}

/** A candidate: an order of the sum and an order of the epilogue. */
export interface Candidate {
  readonly order: SummationOrder;
  readonly epilogue: EpilogueName;
}

/** A candidate and the elements that contradict it. */
export interface Match extends Candidate {
  readonly misses: readonly number[];
}

/** Whether two results are equal. All NaN are equal, and zeros of either sign are equal. */
export function sameValue(a: number, b: number): boolean {
  return a === b || (Number.isNaN(a) && Number.isNaN(b));
}

/** The value that a candidate gives an element. */
export function valueBy(
  { order, epilogue }: Candidate,
  { terms, operands }: Omit<JudgedElement, "actual">,
): number {
  const sum = new Evaluator(terms).sum(order, startOf(epilogue, operands));
  return storedValue(epilogue, sum, operands);
}

/** All candidates are tried on `first` elements, and the remaining candidates on `second` elements. */
const PILOTS = { first: 16, second: 160 };
/** The maximum number of the first elements that a candidate may miss: one element may be wrong although the order is right. */
const MISSES = 1;
/** The search ends when it has compared this many candidates, besides the first candidate, with all elements. */
export const MAX_OTHERS = 23;
/** The number of elements in the sample from which the pilots are chosen. */
const SAMPLES = 1500;
/** The search drops a candidate that contradicts more than this share of all elements. */
const MAX_SHARE = 1 / 32;

/**
 * The indices of elements that distinguish orders (pilots). Every second pilot is an element in which orders differ most,
 * relative to its value, so that the type of the result hides no difference. The other pilots are spread over all elements.
 */
function pilotsOf(elements: readonly JudgedElement[], count: number): readonly number[] {
  const step = Math.max(1, elements.length / SAMPLES);
  const sample = Array.from({ length: Math.min(SAMPLES, elements.length) }, (_, i) => Math.floor(i * step));
  const conditions = new Map(
    sample.map((i) => [
      i,
      conditionOf((elements[i] as JudgedElement).terms, (elements[i] as JudgedElement).actual),
    ]),
  );
  const sortedSample = sample
    .filter((i) => (conditions.get(i) ?? 0) > 0)
    .sort((a, b) => (conditions.get(b) ?? 0) - (conditions.get(a) ?? 0));
  const half = Math.ceil(count / 2);
  const stride = Math.max(1, sortedSample.length / half);
  const pilots = Array.from({ length: half }, (_, i) => [
    sortedSample[i],
    sortedSample[Math.floor(i * stride)],
  ]).flat();
  return [...new Set(pilots.filter((i): i is number => i !== undefined))];
}

/** Returns a function that tests whether a candidate contradicts at most `allowed` of these elements. */
function explainsElements(
  elements: readonly JudgedElement[],
  allowed: number,
): (candidate: Candidate) => boolean {
  const evaluators = elements.map(({ terms }) => new Evaluator(terms));
  return ({ order, epilogue }) => {
    let missCount = 0;
    for (const [i, { operands, actual }] of elements.entries()) {
      const sum = (evaluators[i] as Evaluator).sum(order, startOf(epilogue, operands));
      if (!sameValue(storedValue(epilogue, sum, operands), actual) && ++missCount > allowed) return false;
    }
    return true;
  };
}

/** The elements that contradict a candidate; undefined if there are too many. */
function missesOf(candidate: Candidate, elements: readonly JudgedElement[]): readonly number[] | undefined {
  const misses: number[] = [];
  const maxMisses = Math.max(MISSES, elements.length * MAX_SHARE);
  for (const [i, element] of elements.entries()) {
    if (sameValue(valueBy(candidate, element), element.actual)) continue;
    misses.push(i);
    if (misses.length > maxMisses) return undefined;
  }
  return misses;
}

/** The result of a search. */
export interface Search {
  /** The number of candidates that were tried. */
  readonly candidateCount: number;
  /** The candidate with the fewest contradictions. Absent if every candidate has too many. */
  readonly best?: Match;
  /** The number of other candidates that explain every element too. Counting stops at `MAX_OTHERS`. */
  readonly others: number;
}

/**
 * Searches for the order that explains the elements. Of several such orders, the first one is preferred. The elements have finite
 * operands.
 */
export function searchOrder(orders: readonly SummationOrder[], elements: readonly JudgedElement[]): Search {
  const epilogues = epiloguesFor(elements.map(({ operands }) => operands));
  const candidates = epilogues.flatMap((epilogue) => orders.map((order) => ({ order, epilogue })));
  const elementsAt = (indices: readonly number[]) => indices.map((i) => elements[i] as JudgedElement);
  const pilots = pilotsOf(elements, PILOTS.second);
  const explainsFirst = explainsElements(elementsAt(pilots.slice(0, PILOTS.first)), MISSES);
  const explainsPilots = explainsElements(elementsAt(pilots), MISSES + PILOTS.second / 32);
  const matches: Match[] = [];
  let comparedCount = 0;
  for (const candidate of candidates) {
    if (!explainsFirst(candidate) || !explainsPilots(candidate)) continue;
    const misses = missesOf(candidate, elements);
    if (misses) matches.push({ ...candidate, misses });
    if (++comparedCount > MAX_OTHERS) break;
  }
  const [best] = [...matches].sort((a, b) => a.misses.length - b.misses.length);
  const explanations = matches.filter(({ misses }) => misses.length === 0).length;
  return {
    candidateCount: candidates.length,
    others: Math.max(0, explanations - 1),
    ...(best ? { best } : {}),
  };
}
