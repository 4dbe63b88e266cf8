// topk selects the largest elements, in descending order, each with its index; NaN is the largest number.
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../src/index.js";
import { Call } from "../../../src/referee/call.js";
import { topk } from "../../../src/referee/topk.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

const PARAMETERS = ["self", "k", "dim", "largest", "sorted"];

function largest(values: readonly number[], k: number, ...rest: readonly boolean[]): [number[], number[]] {
  const bytes = new Uint8Array(Float32Array.from(values).buffer);
  const x = { dtype: "F32", shape: [values.length], bytes } as const;
  const results = topk(new Call(backend, PARAMETERS, [x, k, -1, ...rest], {}));
  const [topValues, indices] = results.map((result) => result.bytes.slice().buffer);
  return [
    [...new Float32Array(topValues as ArrayBuffer)],
    [...new BigInt64Array(indices as ArrayBuffer)].map(Number),
  ];
}

const fewValues = fc.constantFrom(0, -0, 1, -1, 2, 0.5, Number.NaN, Number.POSITIVE_INFINITY);
const lists = fc.array(fc.oneof(fewValues, fc.float()), { minLength: 1, maxLength: 80 });
/** A number by which lists are sorted: NaN is above infinity. */
const rank = (value: number): number => (Number.isNaN(value) ? Number.MAX_VALUE : Math.min(value, 2 ** 129));

it("gives the elements that a sort of the full list gives", () => {
  fc.assert(
    fc.property(lists, fc.nat({ max: 32 }), (list, count) => {
      const k = Math.min(count, list.length);
      const [values, indices] = largest(list, k);
      const sortedElements = list.toSorted((a, b) => rank(b) - rank(a) || 0).slice(0, k);
      expect(values.map((value) => value + 0)).toEqual(sortedElements.map((value) => value + 0));
      expect(values).toEqual(indices.map((index) => list[index]));
      expect(new Set(indices).size).toBe(k);
    }),
  );
});

it("exchanges equal elements, as the sort of PyTorch does", () => {
  expect(largest([7, 7, 1], 2)[1]).toEqual([1, 0]);
});

it("has no model of long lists or of other orders", () => {
  const list = Array.from({ length: 40 }, (_, i) => i);
  expect(() => largest(list, 33)).toThrow("topk of 33 elements");
  expect(() => largest(list, 2, false)).toThrow("largest is false");
  expect(() => largest(list, 2, true, false)).toThrow("sorted is false");
});
