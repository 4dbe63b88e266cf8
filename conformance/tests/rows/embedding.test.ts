import { describe, expect } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { embedding, embeddingBackward } from "../../../src/ops/rows/embedding.js";
import { download } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const idsOf = (ids: readonly number[], shape?: readonly number[]) =>
  tensor(backend(), Int32Array.from(ids), shape, "i32");

describe("an embedding", () => {
  testInScope("has the rows that the ids name, in the shape of the ids", () => {
    const out = embedding(tensor(backend(), [1, 2, 3, 4, 5, 6], [3, 2]), idsOf([2, 0, 2, 1], [2, 2]));
    expect(out.shape).toEqual([2, 2, 2]);
    expect([...out.dataSync()]).toEqual([5, 6, 1, 2, 5, 6, 3, 4]);
  });

  testInScope("is NaN for an id outside the table", () => {
    const out = embedding(tensor(backend(), [1, 2], [2, 1]), idsOf([-1, 1, 2, -(2 ** 31)]));
    expect([...out.dataSync()]).toEqual([Number.NaN, 2, Number.NaN, Number.NaN]);
  });

  testInScope("of a part of a table is -0 for ids of other parts, which changes no sum", () => {
    const weight = tensor(backend(), [-0, 2], [2, 1]);
    const out = embedding(weight, idsOf([-1, 0, 4, 5, 6, 8, 9]), { first: 4, vocabulary: 9 });
    expect([...out.dataSync()]).toEqual([Number.NaN, -0, -0, 2, -0, -0, Number.NaN]);
    expect(() => embedding(weight, idsOf([0]), { first: 4, vocabulary: 5 })).toThrow("vocabulary is 5");
  });

  testInScope("is rounded once to the requested type", () => {
    const table = tensor(backend(), [1 + 2 ** -8, 1 + 3 * 2 ** -8], [2, 1]);
    expect([...embedding(table, idsOf([0, 1]), { outDtype: "bf16" }).dataSync()]).toEqual([0x3f80, 0x3f82]);
  });
});

describe("the gradient of a table", () => {
  testInScope("adds rows of the same id in their order, before it rounds", () => {
    const grad = tensor(backend(), [2 ** 24, 1, 1, 7, -(2 ** 24), 1], [6, 1]);
    const ids = idsOf([1, 1, 1, 0, 1, 1]);
    expect([...embeddingBackward(grad, ids, 3).dataSync()]).toEqual([7, 1, 0]);
    const half = embeddingBackward(tensor(backend(), [256, 1, 1, 1], [4, 1]), idsOf([0, 0, 0, 0]), 1, {
      outDtype: "bf16",
    });
    expect([...half.dataSync()]).toEqual([0x4382]);
  });

  testInScope("ignores ids outside the table", () => {
    const grad = tensor(backend(), [1, Number.NaN, 1 / 0, 4], [4, 1]);
    expect([...embeddingBackward(grad, idsOf([0, -1, 2, 1]), 2).dataSync()]).toEqual([1, 4]);
  });

  testInScope("of a part of a table adds the gradients of that part's ids only", () => {
    const grad = tensor(backend(), [1, 2, 4, 8, 16], [5, 1]);
    const ids = idsOf([0, 3, 4, 3, -(2 ** 31)]);
    expect([...embeddingBackward(grad, ids, 2, { first: 3 }).dataSync()]).toEqual([10, 4]);
  });

  testInScope("is +0 for rows that no id names, and for sums that cancel", () => {
    const out = embeddingBackward(tensor(backend(), [-0], [1, 1]), idsOf([0]), 2);
    expect([...out.dataSync()]).toEqual([0, 0]);
  });
});

testInScope("operands that do not fit are refused", () => {
  const table = tensor(backend(), [1, 2], [1, 2]);
  expect(() => embedding(table, tensor(backend(), [0]))).toThrow("ids are f32; they must be i32");
  expect(() => embedding(empty(backend(), "e4m3", [1, 2]), idsOf([0]))).toThrow(DTypeError);
  expect(() => embedding(tensor(backend(), [1, 2]), idsOf([0]))).toThrow("table is [2]");
  expect(() => embeddingBackward(table, idsOf([0, 0]), 4)).toThrow(ShapeError);
  expect(() => embeddingBackward(table, idsOf([0]), -1)).toThrow(ArgumentError);
  expect(() => embeddingBackward(table, tensor(backend(), [0]), 4)).toThrow(DTypeError);
});

const threads = useThreads();

testEqualBits("threads do not change a bit", threads, (backend) => {
  const ids = tensor(
    backend,
    Int32Array.from({ length: 3000 }, (_, i) => ((i * i) % 997) % 500),
    undefined,
    "i32",
  );
  const wave = Float32Array.from({ length: 3000 * 130 }, (_, i) => ((i * 7) % 1013) / 500 - 1);
  const table = tensor(backend, wave.subarray(0, 500 * 130), [500, 130]);
  return {
    out: download(embedding(table, ids)),
    gradient: download(embeddingBackward(tensor(backend, wave, [3000, 130]), ids, 500)),
  };
});

testInScope("tensors of two backends are refused", () => {
  const [oneThread, twoThreads] = threads();
  const table = tensor(oneThread as NonNullable<typeof oneThread>, [1], [1, 1]);
  const ids = tensor(twoThreads as NonNullable<typeof twoThreads>, Int32Array.of(0), undefined, "i32");
  expect(() => embedding(table, ids)).toThrow(ArgumentError);
});

const OPERATIONS = ["embedding", "embeddingBackward"] as const;
describeLaws(useBackend({ threads: 2 }), OPERATIONS, { runs: 150, seed: derivedSeed(31) });
