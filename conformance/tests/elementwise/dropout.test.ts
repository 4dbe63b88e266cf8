/** dropout: its laws, threads, the share of dropped elements, and the gradient. */
import { describe, expect } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import * as functional from "../../../src/functional/index.js";
import { tensor } from "../../../src/ops/create.js";
import { dropout } from "../../../src/ops/elementwise/dropout.js";
import { Variable } from "../../../src/tape/variable.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { download } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const COUNT = 300_003;
const wave = Float32Array.from({ length: COUNT }, (_, i) => ((i * 7) % 1013) / 7 + 1);

describeLaws(backend, ["dropout"], { runs: 300, seed: derivedSeed(161) });

describe("results", () => {
  testEqualBits("do not depend on the number of threads", useThreads(), (testBackend) => ({
    out: download(dropout(tensor(testBackend, wave), { probability: 0.3, seed: 5n, outDtype: "bf16" })),
  }));
});

testInScope("the share of dropped elements is near the probability", () => {
  const out = dropout(tensor(backend(), wave), { probability: 0.25, seed: 6n }).dataSync() as Float32Array;
  const share = out.filter((value) => value === 0).length / COUNT;
  // four standard deviations
  expect(Math.abs(share - 0.25)).toBeLessThan(4 * Math.sqrt((0.25 * 0.75) / COUNT));
  const keptEntries = [...out.entries()].filter(([, value]) => value !== 0);
  const keep = Math.fround(1 / 0.75);
  expect(keptEntries.every(([i, value]) => value === Math.fround((wave[i] as number) * keep))).toBe(true);
});

testInScope("other seeds and offsets drop other elements", () => {
  const x = tensor(backend(), wave);
  const zeroPositions = (seed: bigint, offset?: bigint) =>
    [...dropout(x, { probability: 0.5, seed, offset }).dataSync()].map((value) => value === 0);
  const [firstZeros, secondZeros, thirdZeros] = [zeroPositions(1n), zeroPositions(2n), zeroPositions(1n, 1n)];
  for (const otherZeros of [secondZeros, thirdZeros]) {
    const equalShare = otherZeros.filter((value, i) => value === firstZeros[i]).length / COUNT;
    expect(Math.abs(equalShare - 0.5)).toBeLessThan(0.01);
  }
});

testInScope("NaN and infinities are +0 where they are dropped", () => {
  const x = tensor(backend(), [Number.NaN, 1 / 0, -1 / 0, -1, 1, 2, 3, 4]);
  const out = [...dropout(x, { probability: 1 - 2 ** -16, seed: 3n }).dataSync()];
  expect(out).toEqual(new Array(8).fill(0));
});

testInScope("the gradient is dropped at the same elements", () => {
  const draws = { probability: 0.4, seed: 7n, offset: 9n };
  const x = new Variable(tensor(backend(), wave.subarray(0, 1000)), true);
  const grad = tensor(backend(), wave.subarray(1000, 2000));
  const result = functional.dropout(x, draws);
  result.backward(grad);
  expect(download(result.tensor)).toEqual(download(dropout(x.tensor, draws)));
  expect(download(x.grad as Tensor)).toEqual(download(dropout(grad, draws)));
  x.zeroGrad();
});

testInScope("a probability of 1, or none, is refused", () => {
  const x = tensor(backend(), [1]);
  for (const probability of [1, -0.1, Number.NaN])
    expect(() => dropout(x, { probability, seed: 1n })).toThrow(ArgumentError);
  expect(() => dropout(x, { probability: 0.1 } as never)).toThrow(ArgumentError);
});
