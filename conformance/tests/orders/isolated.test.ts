/** A single wrong element is distinguished from a row that is summed in another order. */
import { expect, it } from "vitest";
import { candidateOrders } from "../../../src/orders/candidates.js";
import { areIsolated } from "../../../src/orders/isolated.js";
import { type JudgedElement, searchOrder } from "../../../src/orders/search.js";
import { splitmix32 } from "../../index.js";
import { SEED } from "../harness/draws.js";
import { fma, fround } from "../harness/order-kernels/kernel.js";

const SIZE = 32;
const DEPTH = 96;
const APPLIED = { alpha: 1, scaleX: 1, scaleW: 1, beta: 0, addend: 0, dtype: "f32" } as const;
const orders = candidateOrders({ depth: DEPTH, scaleLength: 0 });
const sampledElements = Array.from({ length: SIZE * SIZE }, (_, i) => ({
  result: 0,
  row: Math.floor(i / SIZE),
  column: i % SIZE,
}));

/** A product in ascending k; `change` replaces some elements. */
function product(change: (value: number, i: number, x: Float64Array, w: Float64Array) => number) {
  const next = splitmix32(SEED);
  const lines = () =>
    Array.from({ length: SIZE }, () =>
      Float64Array.from({ length: DEPTH }, () => fround(next() / 2 ** 31 - 1)),
    );
  const [xs, ws] = [lines(), lines()];
  return sampledElements.map(({ row, column }, i): JudgedElement => {
    const [x, w] = [xs[row] as Float64Array, ws[column] as Float64Array];
    const sum = x.reduce((acc, value, k) => fma(value, w[k] as number, acc), 0);
    return { terms: { x, w, minExponents: [-126, -126] }, operands: APPLIED, actual: change(sum, i, x, w) };
  });
}

it("an element that differs by itself is an error", () => {
  const elements = product((value, i) => (i === 100 ? fround(value * (1 + 2 ** -22)) : value));
  const { best } = searchOrder(orders, elements);
  expect(best?.misses).toEqual([100]);
  expect(best && areIsolated(best, elements, sampledElements)).toBe(true);
}, 120_000);

it.each([
  ["row", (i: number) => Math.floor(i / SIZE) === 5],
  ["column", (i: number) => i % SIZE === 31],
])(
  "a %s in descending k is another order",
  (_, isChanged) => {
    const elements = product((value, i, x, w) =>
      isChanged(i) ? x.reduceRight((acc, value, k) => fma(value, w[k] as number, acc), 0) : value,
    );
    const { best } = searchOrder(orders, elements);
    if (best) expect(areIsolated(best, elements, sampledElements)).toBe(false);
    const misses = elements.flatMap((_, i) => (isChanged(i) ? [i] : []));
    const order = orders[0] as (typeof orders)[number];
    expect(areIsolated({ order, epilogue: "fused", misses }, elements, sampledElements)).toBe(false);
  },
  120_000,
);

it("no element differs from an order that explains all", () => {
  const elements = product((value) => value);
  const { best } = searchOrder(orders, elements);
  expect(best && areIsolated(best, elements, sampledElements)).toBe(false);
}, 120_000);
