/** The search finds each candidate order from elements that an independent implementation computes in that order. */
import { describe, expect, it } from "vitest";
import { candidateOrders } from "../../../src/orders/candidates.js";
import type { EpilogueOperands } from "../../../src/orders/epilogues.js";
import type { SummationOrder, Terms } from "../../../src/orders/order.js";
import { type Candidate, type JudgedElement, searchOrder, valueBy } from "../../../src/orders/search.js";
import { orderWords } from "../../../src/orders/words.js";
import { splitmix32 } from "../../index.js";
import { draws, SEED, sampleCases } from "../harness/draws.js";
import { type Element, fround } from "../harness/order-kernels/kernel.js";
import {
  blockSums,
  cascadeSum,
  fmaChain,
  HALF,
  horizontalAdd,
  laneSums,
  mulAddChain,
  numpySum,
  type Range,
  ranges,
  roundedProducts,
  shuffleDown,
  sumInOrder,
  tensorCore,
} from "../harness/order-kernels/sums.js";

const OPERANDS: EpilogueOperands = { alpha: 1, scaleX: 1, scaleW: 1, beta: 0, addend: 0, dtype: "f32" };
const DEPTH = 300;

function termsOf(seed: number, depth: number): Terms {
  const next = splitmix32(seed);
  // bf16 numbers, so that products are exact and tensor cores support them
  const line = () =>
    Float64Array.from({ length: depth }, () => ((next() % 255) - 127) * 2 ** ((next() % 17) - 16));
  return { x: line(), w: line(), minExponents: [-126, -126] };
}

const elementOf = ({ x, w }: Terms): Element =>
  ({ x: Array.from(x), w: Array.from(w), depth: x.length }) as Partial<Element> as Element;

function judgeElements(sum: (element: Element) => number, count = 40, begin = 0): readonly JudgedElement[] {
  return Array.from({ length: count }, (_, i) => {
    const terms = termsOf(SEED * 1000 + begin + i, i % 4 === 3 ? DEPTH - 37 : DEPTH);
    return { terms, operands: OPERANDS, actual: fround(sum(elementOf(terms))) };
  });
}

const orders = candidateOrders({ depth: DEPTH, scaleLength: 0 });
const wholeRange = ({ depth }: Element): Range => [0, depth];
const TREES = { ascending: sumInOrder, halves: shuffleDown, neighbours: horizontalAdd } as const;

/** The names of splits, and of blocks with the same bits. */
function splitWords(count: number, tile: number): string {
  const dividedRanges = ranges(DEPTH, count, tile);
  const [[, length]] = dividedRanges as [Range];
  return `${dividedRanges.length} splits|blocks of ${length} along K`;
}

/** Orders, each with an implementation that shares no code with the search. Alternatives after | have the same bits. */
const IMPLEMENTATIONS: readonly (readonly [words: string, sum: (element: Element) => number])[] = [
  ["ascending k, fused multiply-add in f32", (element) => fmaChain(element, wholeRange(element))],
  ["numpy's pairwise sum", (element) => numpySum(roundedProducts(element))],
  [
    "down to 1 element|pairwise, divided in the middle down to 2 elements",
    (element) => cascadeSum(roundedProducts(element)),
  ],
  ...[16, 32, 64, 128].map(
    (block) => [`blocks of ${block} along K`, (element: Element) => blockSums(element, block)] as const,
  ),
  ...[2, 4, 8, 16, 32].flatMap((count) =>
    (["ascending", "halves", "neighbours"] as const)
      .filter((join) => count > 2 || join === "ascending")
      .map(
        (join) => [`k mod ${count}`, (element: Element) => TREES[join](laneSums(element, count))] as const,
      ),
  ),
  ...[2, 4, 8].flatMap((count) =>
    [32, 64].map(
      (tile) =>
        [
          splitWords(count, tile),
          (element: Element) =>
            sumInOrder(ranges(element.depth, count, tile).map((range) => fmaChain(element, range))),
        ] as const,
    ),
  ),
  ["hopper-half", (element) => tensorCore(element, wholeRange(element), HALF(-126))],
  [
    "products added in f64",
    (element) => element.x.reduce((sum, x, k) => sum + x * (element.w[k] as number), 0),
  ],
];

/** The time limit of one test. */
const TIMEOUT_MS = 400_000;

describe("searchOrder", () => {
  it.each(sampleCases(IMPLEMENTATIONS, 6))(
    "finds %s",
    (orderPattern, sum) => {
      const { best, candidateCount } = searchOrder(orders, judgeElements(sum));
      expect(best?.misses).toEqual([]);
      expect(candidateCount).toBeGreaterThan(1000);
      const orderInWords = orderWords(best?.order as SummationOrder);
      expect(
        orderPattern.split("|").some((alternative) => orderInWords.includes(alternative)),
        orderInWords,
      ).toBe(true);
      // elements that the search did not see
      for (const { actual, ...element } of judgeElements(sum, 20, 500))
        expect(valueBy(best as Candidate, element), orderInWords).toBe(actual);
    },
    TIMEOUT_MS,
  );

  it(
    "finds every candidate again, or one that gives the same bits",
    () => {
      const next = splitmix32(SEED);
      for (let i = 0; i < draws(30); i++) {
        const order = orders[next() % orders.length] as SummationOrder;
        const elements = judgeElements(() => 0, 24).map((element) => ({
          ...element,
          actual: valueBy({ order, epilogue: "fused" }, element),
        }));
        const { best } = searchOrder(orders, elements);
        expect(best?.misses, orderWords(order)).toEqual([]);
      }
    },
    TIMEOUT_MS,
  );

  it(
    "keeps an order that all elements but one confirm",
    () => {
      const elements = judgeElements((element) => mulAddChain(element, wholeRange(element))).map(
        (element, i) => (i === 7 ? { ...element, actual: element.actual * (1 + 2 ** -22) } : element),
      );
      expect(searchOrder(orders, elements).best?.misses).toEqual([7]);
    },
    TIMEOUT_MS,
  );

  it(
    "finds nothing for an order that is no candidate",
    () => {
      const sumScrambled = (element: Element): number => {
        const rotation = 1 + (Math.abs(Math.round(element.x[0] as number)) % 7);
        const [x, w] = [element.x, element.w].map((values) =>
          values.map((_, k) => values[(k * 97 + rotation) % values.length] as number),
        );
        return fmaChain({ ...element, x: x as number[], w: w as number[] }, wholeRange(element));
      };
      expect(searchOrder(orders, judgeElements(sumScrambled)).best).toBeUndefined();
    },
    TIMEOUT_MS,
  );
});
