import { describe, expect } from "vitest";
import { ArgumentError, DTypeError } from "../../../src/errors.js";
import { empty, tensor, zeros } from "../../../src/ops/create.js";
import { type GradNormOptions, gradNorm } from "../../../src/ops/update/grad-norm.js";
import { sgd } from "../../../src/ops/update/optimizer.js";
import { download } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();

/** The norm and the factor of gradients with these elements. */
function clip(grads: readonly (readonly number[])[], options: GradNormOptions): number[] {
  const { norm, factor } = gradNorm(
    grads.map((grad) => tensor(backend(), grad)),
    options,
  );
  return [norm, factor].map((x) => x.dataSync()[0] as number);
}

describe("the norm of gradients", () => {
  testInScope("is that of all their elements, and the factor reduces it to the maximum", () => {
    const [norm, factor = 0] = clip([[3], [4, 0], []], { maxNorm: 2.5 });
    expect(norm).toBe(5);
    expect(factor).toBe(Math.fround(2.5 / Math.fround(5 + Math.fround(1e-6))));
  });

  testInScope("gives factor 1 if it is at most the maximum", () => {
    expect(clip([[3], [4]], { maxNorm: 6 })).toEqual([5, 1]);
    expect(clip([[0, -0]], { maxNorm: 1e-6 })).toEqual([0, 1]);
    expect(clip([[]], { maxNorm: 1 })).toEqual([0, 1]);
  });

  testInScope("is NaN if an element is NaN, and so is the factor", () => {
    expect(clip([[1], [2, Number.NaN]], { maxNorm: 1 })).toEqual([Number.NaN, Number.NaN]);
  });

  testInScope("is infinite if a square overflows, and then the factor is 0", () => {
    expect(clip([[2 ** 64]], { maxNorm: 1 })).toEqual([1 / 0, 0]);
    expect(clip([[1 / 0, 5]], { maxNorm: 1 })).toEqual([1 / 0, 0]);
    expect(clip([[2 ** 63]], { maxNorm: 2 ** 64 })).toEqual([2 ** 63, 1]);
  });

  testInScope("ignores squares below the smallest f32", () => {
    expect(clip([[2 ** -75]], { maxNorm: 1 })).toEqual([0, 1]);
    expect(clip([[2 ** -74]], { maxNorm: 1 })).toEqual([2 ** -74, 1]);
  });

  testInScope("sums groups of 4096 elements first", () => {
    const big = new Float32Array(4096 + 64).fill(2 ** -12);
    big[0] = 1;
    // Element 0 is in lane 0 of the first 4096 elements. Its square absorbs the 127 other squares of this lane. The
    // last 64 elements are summed separately, so their squares are not lost.
    const { norm } = gradNorm([tensor(backend(), big)], { maxNorm: 1 });
    const lost = 127 * 2 ** -24;
    expect(norm.dataSync()[0]).toBe(Math.fround(Math.sqrt(1 + 4159 * 2 ** -24 - lost)));
  });

  testInScope("can be passed to an optimizer without being read on the host", () => {
    const [parameter, grad] = [tensor(backend(), [1, 1]), tensor(backend(), [6, 8])];
    const { factor } = gradNorm([grad], { maxNorm: 5 });
    sgd({ parameter, grad, gradScale: factor }, { learningRate: 1 });
    expect(Array.from(parameter.dataSync(), (x) => x.toFixed(5))).toEqual(["-2.00000", "-3.00000"]);
  });
});

const threads = useThreads();

testEqualBits("threads do not change a bit", threads, (each) => {
  const wave = (length: number, seed: number) =>
    tensor(
      each,
      Float32Array.from({ length }, (_, i) => ((i * seed) % 1013) - 500),
    );
  const { norm, factor } = gradNorm([wave(600_001, 7), wave(5, 3), wave(8192, 11)], { maxNorm: 1 });
  return { norm: download(norm), factor: download(factor) };
});

testInScope("norm and factor are f32 [1], for any gradients", () => {
  for (const count of [1, 3]) {
    const grads = Array.from({ length: count }, () => zeros(backend(), "bf16", [2, 3]));
    for (const { dtype, shape } of Object.values(gradNorm(grads, { maxNorm: 1 })))
      expect([dtype, ...shape]).toEqual(["f32", 1]);
  }
});

testInScope("operands that do not fit are refused", () => {
  const grads = [tensor(backend(), [1])];
  expect(() => gradNorm([], { maxNorm: 1 })).toThrow(ArgumentError);
  expect(() => gradNorm([], { maxNorm: 1 })).toThrow("no gradients");
  for (const maxNorm of [-1, Number.NaN, 1 / 0, 1e39])
    expect(() => gradNorm(grads, { maxNorm })).toThrow("maxNorm is");
  expect(() => gradNorm([...grads, empty(backend(), "e5m2", [2])], { maxNorm: 1 })).toThrow(DTypeError);
  const [other] = threads();
  const foreign = zeros(other as NonNullable<typeof other>, "f32", [1]);
  expect(() => gradNorm([...grads, foreign], { maxNorm: 1 })).toThrow(ArgumentError);
});

describeLaws(useBackend({ threads: 2 }), ["gradNorm"], { runs: 100, seed: derivedSeed(33) });
