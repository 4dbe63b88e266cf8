/** Cross-entropy whose classes are divided: the steps, and equality with `crossEntropy` for a single part. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError } from "../../../src/errors.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { crossEntropy, crossEntropyBackward } from "../../../src/ops/rows/loss.js";
import { lossMaximum, lossOfSums, lossSums } from "../../../src/ops/rows/loss-parts.js";
import { Scope } from "../../../src/tensor/scope.js";
import { crossEntropyCase } from "../../operations/rows/loss.js";
import { differenceOf } from "../../values/difference.js";
import { download, upload } from "../../values/plain.js";
import { derivedSeed, draws } from "../harness/draws.js";
import { describeLaws, testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 2 });
const otherBackend = useBackend();

it("all classes in one part give the losses of crossEntropy", () => {
  fc.assert(
    fc.property(crossEntropyCase, ({ logits, targets, smoothing, ignore }) => {
      using _ = new Scope();
      const [x, labels] = [upload(backend(), logits), upload(backend(), targets)];
      const fullLoss = crossEntropy(x, labels, { smoothing, ignore });
      const maximum = lossMaximum(x);
      const sums = lossSums({ logits: x, targets: labels, maximum }, { first: 0, smoothing });
      const loss = lossOfSums(sums, labels, { classes: logits.matrix[1], smoothing, ignore });
      expect(differenceOf(download(maximum), download(fullLoss.maximum))).toBeUndefined();
      expect(differenceOf(download(loss), download(fullLoss.loss))).toBeUndefined();
    }),
    { numRuns: draws(60) },
  );
});

/** Counts that f32 does not represent, most of them odd. */
const manyClasses = fc.integer({ min: 2 ** 24, max: 2 ** 31 - 3 });
const smoothings = fc.float({ min: Math.fround(2 ** -20), max: Math.fround(0.9), noNaN: true });

it("a number of classes above 2^24 is rounded to f32 before it divides", () => {
  fc.assert(
    fc.property(manyClasses, smoothings, (classes, smoothing) => {
      using _ = new Scope();
      const makeTensor = (values: number[], shape = [values.length]) => tensor(backend(), values, shape);
      const targets = tensor(backend(), Int32Array.of(0), [1], "i32");
      const logits = makeTensor([0, Number.NEGATIVE_INFINITY], [1, 2]);
      const inputs = {
        grad: makeTensor([1]),
        logits,
        targets,
        maximum: makeTensor([0]),
        total: makeTensor([1]),
      };
      const dx = crossEntropyBackward(inputs, { first: 0, classes, smoothing });
      const share = Math.fround(Math.fround(smoothing) / Math.fround(classes));
      expect(dx.dataSync()[1]).toBe(-share);
      // log(total) is 0, x_t - maximum is 0, and the distances of all classes add up to -1
      const loss = lossOfSums(makeTensor([1, 0, -1], [3, 1]), targets, { classes, smoothing });
      const uniform = Math.fround(1 / Math.fround(classes));
      expect(loss.dataSync()[0]).toBe(Math.fround(Math.fround(smoothing) * uniform));
    }),
    { numRuns: draws(300), examples: [[2147481651, Math.fround(0.1)]] },
  );
});

testInScope("a target of another part is -0, which changes no sum", () => {
  const logits = tensor(backend(), [1, 3, 2, 5], [2, 2]);
  const maximum = lossMaximum(logits);
  expect([...maximum.dataSync()]).toEqual([3, 5]);
  const targets = tensor(backend(), Int32Array.of(4, 7), [2], "i32");
  const sums = lossSums({ logits, targets, maximum }, { first: 4, smoothing: 0.5 });
  expect(sums.shape).toEqual([3, 2]);
  const [, , firstWord, secondWord, ...distances] = sums.dataSync();
  expect([firstWord, secondWord]).toEqual([-2, -0]);
  expect(distances).toEqual([-2, -3]);
});

testInScope("inputs whose shapes or dtypes do not fit together are refused", () => {
  const logits = tensor(backend(), [1, 2], [1, 2]);
  const targets = tensor(backend(), Int32Array.of(0), [1], "i32");
  const maximum = lossMaximum(logits);
  const sums = lossSums({ logits, targets, maximum }, { first: 0 });
  expect(() => lossMaximum(empty(backend(), "e4m3", [1, 2]))).toThrow(DTypeError);
  expect(() => lossSums({ logits, targets, maximum: logits }, { first: 0 })).toThrow(ShapeError);
  expect(() => lossSums({ logits, targets: maximum, maximum }, { first: 0 })).toThrow(DTypeError);
  expect(() => lossOfSums(sums, targets, { classes: 2, smoothing: 0.1 })).toThrow(ShapeError);
  expect(() => lossOfSums(sums, empty(backend(), "i32", [2]), { classes: 2 })).toThrow(ShapeError);
  expect(() => lossOfSums(maximum, targets, { classes: 2 })).toThrow("sums is [1]; it must be [2,1]");
  const [foreign, labels] = [
    tensor(otherBackend(), [2]),
    tensor(otherBackend(), Int32Array.of(0), [1], "i32"),
  ];
  expect(() => lossSums({ logits, targets, maximum: foreign }, { first: 0 })).toThrow(ArgumentError);
  expect(() => lossSums({ logits, targets: labels, maximum }, { first: 0 })).toThrow(ArgumentError);
  expect(() => lossOfSums(sums, labels, { classes: 2 })).toThrow(ArgumentError);
  const inputs = { grad: maximum, logits, targets, maximum, total: maximum };
  expect(() => crossEntropyBackward(inputs, { first: 3, classes: 4 })).toThrow("classes is 4");
});

const LOSSES = ["lossMaximum", "lossSums", "lossOfSums"] as const;
describeLaws(useBackend({ threads: 2 }), LOSSES, { runs: 100, seed: derivedSeed(20) });
