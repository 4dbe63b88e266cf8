/** Permutations of tokens by experts: results and gradients against the oracle, over routings and options. */
import { describe, expect, it } from "vitest";
import { ArgumentError, ShapeError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { covering, product } from "../../arbitraries/covering.js";
import { words } from "../../arbitraries/random.js";
import * as oracle from "../../oracle/rows/expert-rows.js";
import { download, fromCodes, type PlainTensor, upload } from "../../values/plain.js";
import { rounded, rowsOf } from "../../values/rounded.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();
const COLUMNS = 9;

/** How tokens choose among experts. */
const ROUTINGS = {
  spread: (token: number, slot: number, experts: number) => (token + slot) % experts,
  allToOne: (_token: number, slot: number, experts: number) => (experts - 1 + slot) % experts,
  oneWithout: (token: number, slot: number, experts: number) =>
    (((token + slot) % Math.max(experts - 1, 1)) + 1) % experts,
} as const;

const ROWS = covering(
  product({
    mapType: ["mask", "index"],
    routing: Object.keys(ROUTINGS) as (keyof typeof ROUTINGS)[],
    tokens: [0, 1, 13],
    experts: [1, 3, 8],
    topk: [1, 3],
    alignSize: [undefined, 4],
    rest: [-3, 0, 5],
    dtype: ["f32", "bf16"],
    probsType: ["f32", "bf16"],
  } as const),
  3,
);

const floats = (seed: number, shape: readonly number[], dtype: "f32" | "bf16") =>
  fromCodes(
    dtype,
    shape,
    Array.from(
      words(
        seed,
        shape.reduce((a, b) => a * b, 1),
      ),
      (word) => {
        const bits = ((word & 0x80ff_ffff) | 0x3f00_0000) >>> 0;
        return dtype === "f32" ? bits : bits >>> 16;
      },
    ),
  );

function testPermutation(row: (typeof ROWS)[number]): void {
  using _scope = new Scope();
  const { mapType, tokens, experts, alignSize, dtype, probsType } = row;
  const topk = Math.min(row.topk, experts);
  const expertsPerToken = Array.from({ length: tokens }, (_, token) =>
    Array.from({ length: topk }, (_, slot) => ROUTINGS[row.routing](token, slot, experts)),
  );
  const map =
    mapType === "index"
      ? expertsPerToken
      : expertsPerToken.map((tokenExperts) =>
          Array.from({ length: experts }, (_, expert) => Number(tokenExperts.includes(expert))),
        );
  const width = mapType === "index" ? topk : experts;
  const counts = Array.from(
    { length: experts },
    (_, expert) => expertsPerToken.flat().filter((chosenExpert) => chosenExpert === expert).length,
  );
  const align = alignSize ?? 1;
  const numPaddedRows = counts.reduce((total, count) => total + Math.ceil(count / align) * align, 0);
  const numOutTokens = Math.max(numPaddedRows + row.rest, 0);
  const expected = oracle.rowIdMap(map, {
    experts,
    indices: mapType === "index",
    total: numOutTokens,
    align,
  });
  const rows = Array.from({ length: tokens }, (_, token) =>
    expected.rows.slice(token * width, (token + 1) * width),
  );

  const x = floats(1, [tokens, COLUMNS], dtype);
  const probs = floats(2, [tokens, width], probsType);
  const leaves = [x, probs].map((input) => new Variable(upload(backend(), input), true)) as [
    Variable,
    Variable,
  ];
  const routingMap = tensor(backend(), Int32Array.from(map.flat()), [tokens, width], "i32");
  const options = {
    ...{ mapType, numOutTokens, alignSize },
    numExperts: mapType === "index" ? experts : undefined,
  };
  const permutation = functional.moePermuteWithProbs(...leaves, routingMap, options);
  const withoutProbs = functional.moePermute(leaves[0], routingMap, options);

  const takenRows = oracle.takeRows(rowsOf(x), COLUMNS, expected.sources, {
    period: width,
    weights: undefined,
  });
  const weights = rowsOf(probs).flat();
  const shares = expected.sources.map((source) => (source < 0 ? 0 : (weights[source] as number)));
  const output = rounded(dtype, [numOutTokens, COLUMNS], takenRows.flat());
  expect(download(permutation.output.tensor)).toEqual(output);
  expect(download(withoutProbs.output.tensor)).toEqual(output);
  expect(download(permutation.permutedProbs.tensor)).toEqual(rounded(probsType, [numOutTokens], shares));
  expect([...permutation.rowIdMap.tokensPerExpert.dataSync()]).toEqual(expected.tokensPerExpert);

  // the output of the experts: other values than their input
  const experts1 = floats(3, [numOutTokens, COLUMNS], dtype);
  const outputs = new Variable(upload(backend(), experts1), true);
  const mergedOutput = functional.moeUnpermute(outputs, permutation.rowIdMap, { mergingProbs: leaves[1] });
  const sums = oracle.combineRows(rowsOf(experts1), COLUMNS, rows, rowsOf(probs));
  expect(download(mergedOutput.tensor)).toEqual(rounded(dtype, [tokens, COLUMNS], sums.flat()));

  const grad = floats(4, [tokens, COLUMNS], dtype);
  mergedOutput.backward(upload(backend(), grad));
  const scatteredRows = oracle.takeRows(rowsOf(grad), COLUMNS, expected.sources, { period: width, weights });
  expect(download(outputs.grad as Tensor)).toEqual(
    rounded(dtype, [numOutTokens, COLUMNS], scatteredRows.flat()),
  );
  const dots = oracle.rowDots(rowsOf(grad), rowsOf(experts1), rows);
  expect(download(leaves[1].grad as Tensor)).toEqual(rounded(probsType, [tokens, width], dots.flat()));
  leaves[1].zeroGrad();

  const gradOutput = floats(5, [numOutTokens, COLUMNS], dtype);
  permutation.output.backward(upload(backend(), gradOutput));
  const combinedRows = oracle.combineRows(rowsOf(gradOutput), COLUMNS, rows, undefined);
  expect(download(leaves[0].grad as Tensor)).toEqual(rounded(dtype, [tokens, COLUMNS], combinedRows.flat()));
  for (const leaf of [...leaves, outputs]) leaf.zeroGrad();

  const secondCall = functional.moePermuteWithProbs(...leaves, routingMap, options);
  const probsGrad = floats(6, [numOutTokens], probsType);
  secondCall.permutedProbs.backward(upload(backend(), probsGrad));
  const gradients = rowsOf(probsGrad).flat();
  const expectedProbsGrad = rows
    .flat()
    .map((rowIndex) => (rowIndex < 0 ? 0 : (gradients[rowIndex] as number)));
  expect(download(leaves[1].grad as Tensor)).toEqual(rounded(probsType, [tokens, width], expectedProbsGrad));
  for (const leaf of leaves) leaf.zeroGrad();
}

describe("permutations and their gradients equal the oracle", () => {
  it(`over ${ROWS.length} routings, which have every three options`, () => {
    for (const row of ROWS) testPermutation(row);
  });
});

const SPLITS = [[0, 3, 2], [5], [0, 0, 5, 0], [1, 1, 1, 1, 1]] as const;
const SORTED = [[2, 0, 1], [0], [3, 1, 0, 2], [4, 3, 2, 1, 0]] as const;

testInScope("chunks move as a whole, with their probabilities, and gradients move back", () => {
  for (const [i, splits] of SPLITS.entries()) {
    const order = SORTED[i] as readonly number[];
    const x = new Variable(upload(backend(), floats(7, [5, 2, 3], "bf16")), true);
    const probs = new Variable(upload(backend(), floats(8, [5], "f32")), true);
    const chunks = splits.map((size, chunk) =>
      Array.from(
        { length: size },
        (_, rowInChunk) => splits.slice(0, chunk).reduce((a: number, b) => a + b, 0) + rowInChunk,
      ),
    );
    const rows = order.flatMap((chunk) => chunks[chunk] as number[]);
    const moveRows = (plainTensor: PlainTensor, from: readonly number[]) => {
      const width = plainTensor.data.length / 5;
      return from.flatMap((row) => [...plainTensor.codes.subarray(row * width, (row + 1) * width)]);
    };
    const sortedChunks = functional.moeSortChunksByIndexWithProbs(x, probs, splits, order);
    expect([...download(sortedChunks.output.tensor).codes]).toEqual(moveRows(download(x.tensor), rows));
    expect([...download(sortedChunks.permutedProbs.tensor).codes]).toEqual(
      moveRows(download(probs.tensor), rows),
    );
    const [grad, probsGrad] = [floats(9, [5, 2, 3], "bf16"), floats(10, [5], "f32")];
    const back = [0, 1, 2, 3, 4].map((row) => rows.indexOf(row));
    sortedChunks.output.backward(upload(backend(), grad));
    sortedChunks.permutedProbs.backward(upload(backend(), probsGrad));
    expect([...download(x.grad as Tensor).codes]).toEqual(moveRows(grad, back));
    expect([...download(probs.grad as Tensor).codes]).toEqual(moveRows(probsGrad, back));
    for (const leaf of [x, probs]) leaf.zeroGrad();
  }
});

testInScope("padding adds rows of +0 after each chunk, and unpadding removes them", () => {
  for (const splits of SPLITS)
    for (const alignSize of [1, 2, 32]) {
      const x = new Variable(upload(backend(), floats(11, [5, 3], "f32")), true);
      const paddedChunks = functional.padding(x, splits, alignSize);
      expect(paddedChunks.mSplits).toEqual(splits.map((size) => Math.ceil(size / alignSize) * alignSize));
      const values = [...x.tensor.dataSync()];
      const expected = splits.flatMap((size, i) => [
        ...values.splice(0, size * 3),
        ...Array<number>(((paddedChunks.mSplits[i] as number) - size) * 3).fill(0),
      ]);
      expect([...paddedChunks.output.tensor.dataSync()]).toEqual(expected);
      const unpaddedChunks = functional.unpadding(paddedChunks.output, splits, alignSize);
      expect(download(unpaddedChunks.tensor)).toEqual(download(x.tensor));
      unpaddedChunks.backward(upload(backend(), floats(12, [5, 3], "f32")));
      expect(download(x.grad as Tensor)).toEqual(floats(12, [5, 3], "f32"));
      x.zeroGrad();
    }
});

it("without a graph, only results and the map stay", () => {
  const x = new Variable(empty(backend(), "bf16", [4, 8]), true);
  const map = tensor(backend(), Int32Array.of(0, 1, 1, 0), [4, 1], "i32");
  const options = { mapType: "index", numExperts: 2 } as const;
  const blocksBefore = backend().memoryUse().blocks;
  const { output, rowIdMap } = noGrad(() => functional.moePermute(x, map, options));
  expect(backend().memoryUse().blocks).toBe(blocksBefore + 4);
  for (const tensorToFree of [output.tensor, ...Object.values(rowIdMap), map, x.tensor])
    tensorToFree.dispose();
});

testInScope("maps and sizes that do not fit are refused", () => {
  const x = empty(backend(), "bf16", [4, 8]);
  const map = empty(backend(), "i32", [4, 2]);
  expect(() => functional.moePermute(x, map)).toThrow(ArgumentError);
  expect(() => functional.moePermute(x, map, { mapType: "index" })).toThrow(ArgumentError);
  expect(() => functional.moePermute(x, map, { numOutTokens: 8, numExperts: 2 })).toThrow(ArgumentError);
  expect(() => functional.moePermute(x, empty(backend(), "i32", [3, 2]), { numOutTokens: 8 })).toThrow(
    ShapeError,
  );
  const { rowIdMap } = functional.moePermute(x, map, { numOutTokens: 8 });
  expect(() => functional.moeUnpermute(x, rowIdMap)).toThrow(ShapeError);
  expect(() => functional.moeSortChunksByIndex(x, [2, 2], [0, 0])).toThrow(ArgumentError);
  expect(() => functional.moeSortChunksByIndex(x, [2, 1], [0, 1])).toThrow(ShapeError);
  expect(() => functional.padding(x, [3], 2)).toThrow(ShapeError);
  expect(() => functional.unpadding(x, [3], 3)).toThrow(ShapeError);
});
