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

function judged(sum: (element: Element) => number, count = 40, first = 0): readonly JudgedElement[] {
  return Array.from({ length: count }, (_, i) => {
    const terms = termsOf(SEED * 1000 + first + i, i % 4 === 3 ? DEPTH - 37 : DEPTH);
    return { terms, operands: OPERANDS, actual: fround(sum(elementOf(terms))) };
  });
}

const orders = candidateOrders({ depth: DEPTH, scaleLength: 0 });
const whole = ({ depth }: Element): Range => [0, depth];
const TREES = { ascending: sumInOrder, halves: shuffleDown, neighbours: horizontalAdd } as const;

/** The names of splits, and of blocks with the same bits. */
function splitWords(count: number, tile: number): string {
  const divided = ranges(DEPTH, count, tile);
  const [[, length]] = divided as [Range];
  return `${divided.length} splits|blocks of ${length} along K`;
}

/** Orders, each with an implementation that shares no code with the search. Alternatives after | have the same bits. */
const KNOWN: readonly (readonly [words: string, sum: (element: Element) => number])[] = [
  ["ascending k, fused multiply-add in f32", (e) => fmaChain(e, whole(e))],
  ["numpy's pairwise sum", (e) => numpySum(roundedProducts(e))],
  [
    "down to 1 element|pairwise, divided in the middle down to 2 elements",
    (e) => cascadeSum(roundedProducts(e)),
  ],
  ...[16, 32, 64, 128].map(
    (block) => [`blocks of ${block} along K`, (e: Element) => blockSums(e, block)] as const,
  ),
  ...[2, 4, 8, 16, 32].flatMap((count) =>
    (["ascending", "halves", "neighbours"] as const)
      .filter((join) => count > 2 || join === "ascending")
      .map((join) => [`k mod ${count}`, (e: Element) => TREES[join](laneSums(e, count))] as const),
  ),
  ...[2, 4, 8].flatMap((count) =>
    [32, 64].map(
      (tile) =>
        [
          splitWords(count, tile),
          (e: Element) => sumInOrder(ranges(e.depth, count, tile).map((range) => fmaChain(e, range))),
        ] as const,
    ),
  ),
  ["hopper-half", (e) => tensorCore(e, whole(e), HALF(-126))],
  ["products added in f64", (e) => e.x.reduce((sum, x, k) => sum + x * (e.w[k] as number), 0)],
];

/** The time limit of one test. */
const LIMIT = 400_000;

describe("searchOrder", () => {
  it.each(sampleCases(KNOWN, 6))(
    "finds %s",
    (words, sum) => {
      const { best, candidateCount } = searchOrder(orders, judged(sum));
      expect(best?.misses).toEqual([]);
      expect(candidateCount).toBeGreaterThan(1000);
      const found = orderWords(best?.order as SummationOrder);
      expect(
        words.split("|").some((each) => found.includes(each)),
        found,
      ).toBe(true);
      // elements that the search did not see
      for (const { actual, ...element } of judged(sum, 20, 500))
        expect(valueBy(best as Candidate, element), found).toBe(actual);
    },
    LIMIT,
  );

  it(
    "finds every candidate again, or one that gives the same bits",
    () => {
      const next = splitmix32(SEED);
      for (let i = 0; i < draws(30); i++) {
        const order = orders[next() % orders.length] as SummationOrder;
        const elements = judged(() => 0, 24).map((element) => ({
          ...element,
          actual: valueBy({ order, epilogue: "fused" }, element),
        }));
        const { best } = searchOrder(orders, elements);
        expect(best?.misses, orderWords(order)).toEqual([]);
      }
    },
    LIMIT,
  );

  it(
    "keeps an order that all elements but one confirm",
    () => {
      const elements = judged((e) => mulAddChain(e, whole(e))).map((element, i) =>
        i === 7 ? { ...element, actual: element.actual * (1 + 2 ** -22) } : element,
      );
      expect(searchOrder(orders, elements).best?.misses).toEqual([7]);
    },
    LIMIT,
  );

  it(
    "finds nothing for an order that is no candidate",
    () => {
      const scrambled = (e: Element): number => {
        const turn = 1 + (Math.abs(Math.round(e.x[0] as number)) % 7);
        const [x, w] = [e.x, e.w].map((values) =>
          values.map((_, k) => values[(k * 97 + turn) % values.length] as number),
        );
        return fmaChain({ ...e, x: x as number[], w: w as number[] }, whole(e));
      };
      expect(searchOrder(orders, judged(scrambled)).best).toBeUndefined();
    },
    LIMIT,
  );
});
