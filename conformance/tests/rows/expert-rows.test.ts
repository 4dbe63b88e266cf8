/** Rows of experts: laws, threads and refusals. */
import { describe, expect } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { combineRows, rowDots, rowIdMap, takeRows } from "../../../src/ops/rows/expert-rows.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { download } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();

describeLaws(backend, ["rowIdMap", "takeRows", "combineRows", "rowDots"], {
  runs: 300,
  seed: derivedSeed(171),
});

describe("results do not depend on the number of threads", () => {
  const values = Float32Array.from(words(3, 700 * 300), (bits) => bits / 2 ** 32 - 0.5);
  const experts = Int32Array.from(words(4, 700 * 4), (bits) => bits % 9);
  testEqualBits("takeRows, combineRows and rowDots", useThreads(), (backend: Tensor["backend"]) => {
    const x = tensor(backend, values, [700, 300]);
    const map = tensor(backend, experts, [700, 4], "i32");
    const { rows, sources } = rowIdMap(map, { numOutTokens: 2800, numExperts: 8 });
    const takenRows = takeRows(x, sources, { entriesPerRow: 4 });
    const combinedRows = combineRows(takenRows, rows);
    return {
      taken: download(takenRows),
      combined: download(combinedRows),
      dots: download(rowDots(combinedRows, takenRows, rows)),
    };
  });
});

testInScope("rows are those of expert 0 in ascending order, then those of expert 1", () => {
  const mask = tensor(backend(), Int32Array.of(0, 1, 1, 0, 1, 1), [3, 2], "i32");
  const { rows, sources, tokensPerExpert } = rowIdMap(mask, { numOutTokens: 7, alignSize: 3 });
  expect([...rows.dataSync()]).toEqual([-1, 3, 0, -1, 1, 4]);
  expect([...sources.dataSync()]).toEqual([2, 4, -1, 1, 5, -1, -1]);
  expect([...tokensPerExpert.dataSync()]).toEqual([3, 3]);
});

testInScope("tokens beyond the last row are dropped, and -1 selects zeros", () => {
  const experts = tensor(backend(), Int32Array.of(1, 0, 1, -1), [4, 1], "i32");
  const { rows, sources, tokensPerExpert } = rowIdMap(experts, { numOutTokens: 2, numExperts: 2 });
  expect([...rows.dataSync()]).toEqual([1, 0, -1, -1]);
  expect([...tokensPerExpert.dataSync()]).toEqual([1, 1]);
  const x = tensor(backend(), [1, 2, 3, 4], [4, 1]);
  const takenRows = takeRows(x, sources);
  expect([...takenRows.dataSync()]).toEqual([2, 1]);
  expect([...combineRows(takenRows, rows).dataSync()]).toEqual([1, 2, 0, 0]);
});

testInScope("the products of a sum are rounded, and added in ascending order of entries", () => {
  const x = tensor(backend(), [2 ** 24, 1, -(2 ** 24)], [3, 1]);
  const sum = (...rows: number[]) =>
    combineRows(x, tensor(backend(), Int32Array.from(rows), [1, rows.length], "i32")).dataSync()[0];
  expect([sum(0, 1, 2), sum(0, 2, 1), sum(1, 0, 2)]).toEqual([0, 1, 0]);
});

testInScope("tensors that do not fit are refused", () => {
  const x = empty(backend(), "bf16", [4, 8]);
  const i32 = (shape: readonly number[]) => empty(backend(), "i32", shape);
  expect(() => rowIdMap(i32([4]), { numOutTokens: 1 })).toThrow(ShapeError);
  expect(() => rowIdMap(i32([4, 2]), { numOutTokens: 1, alignSize: 0 })).toThrow(ArgumentError);
  expect(() => rowIdMap(x, { numOutTokens: 1 })).toThrow(DTypeError);
  expect(() => takeRows(x, i32([2, 2]))).toThrow(ShapeError);
  expect(() => takeRows(x, i32([2]), { weights: empty(backend(), "f32", [5]) })).toThrow(ShapeError);
  expect(() => combineRows(x, i32([2, 2]), { weights: empty(backend(), "f32", [4]) })).toThrow(ShapeError);
  expect(() => rowDots(x, x, i32([3, 2]))).toThrow(ShapeError);
});
