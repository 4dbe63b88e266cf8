/** The largest elements of rows: laws, threads and refusals. */
import { describe, expect } from "vitest";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { topk } from "../../../src/ops/rows/topk.js";
import { words } from "../../arbitraries/random.js";
import { assertSameAnswer } from "../../laws/laws.js";
import { topkOperation } from "../../operations/rows/topk.js";
import { download, fromCodes } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();

describeLaws(backend, ["topk"], { runs: 300, seed: derivedSeed(172) });

describe("results do not depend on the number of threads", () => {
  const values = Float32Array.from(words(3, 900 * 64), (bits) => bits % 50);
  testEqualBits("topk", useThreads(), (backend) => {
    const { indices, mask } = topk(tensor(backend, values, [900, 64]), 6, { numGroups: 8, groupTopk: 3 });
    return { indices: download(indices), mask: download(mask) };
  });
});

testInScope("of equal elements the first is chosen; NaN counts as -infinity", () => {
  const rows = [
    [1, 2, 2, 2],
    [0, -0, 0, -1],
    [Number.NaN, Number.NEGATIVE_INFINITY, -1, Number.NaN],
  ];
  const { indices, routingMap } = topk(tensor(backend(), rows.flat(), [3, 4]), 2);
  expect([...indices.dataSync()]).toEqual([1, 2, 0, 1, 2, 0]);
  expect([...routingMap.dataSync()]).toEqual([0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0]);
});

testInScope("groups with the largest sums of their largest elements are chosen", () => {
  const row = [9, 0, 0, 5, 5, 0, 4, 4, 4];
  const chosenOf = (k: number, groupTopk: number) => [
    ...topk(tensor(backend(), row, [1, 9]), k, { numGroups: 3, groupTopk }).indices.dataSync(),
  ];
  expect(chosenOf(1, 1)).toEqual([0]);
  expect(chosenOf(2, 1)).toEqual([3, 4]);
  expect(chosenOf(3, 1)).toEqual([6, 7, 8]);
  expect(chosenOf(4, 2)).toEqual([0, 3, 4, 1]);
  expect(chosenOf(4, 3)).toEqual([0, 3, 4, 6]);
});

testInScope("every row of groups with sums that are infinite or NaN has the groups of the definition", () => {
  const elements = [Number.NaN, Number.NEGATIVE_INFINITY, 0, 1, Number.POSITIVE_INFINITY];
  const COLUMNS = 4;
  const rows = elements.length ** COLUMNS;
  const values = Float32Array.from(
    { length: rows * COLUMNS },
    (_, i) =>
      elements[
        Math.floor(Math.floor(i / COLUMNS) / elements.length ** (i % COLUMNS)) % elements.length
      ] as number,
  );
  const x = fromCodes("f32", [rows, COLUMNS], [...new Uint32Array(values.buffer)]);
  for (const [k, numGroups, groupTopk] of [
    [1, 2, 1],
    [2, 2, 1],
    [2, 4, 2],
  ] as const) {
    const options = { x, k, numGroups, groupTopk };
    assertSameAnswer(topkOperation.run(backend(), options), topkOperation.oracle(options));
  }
});

testInScope("numbers that do not fit are refused", () => {
  const x = empty(backend(), "bf16", [4, 12]);
  expect(() => topk(empty(backend(), "bf16", [4]), 1)).toThrow(ShapeError);
  for (const [k, numGroups, groupTopk] of [
    [0, 1, 1],
    [13, 1, 1],
    [2, 5, 1],
    [2, 3, 4],
    [3, 3, 2],
    [10, 3, 2],
  ] as const)
    expect(() => topk(x, k, { numGroups, groupTopk })).toThrow(ArgumentError);
});
