/** Cross-entropy whose classes are divided: the steps, and that one part alone gives what `crossEntropy` gives. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { DTypeError, ShapeError } from "../../../src/errors.js";
import { empty, tensor } from "../../../src/ops/create.js";
import { crossEntropy, crossEntropyBackward } from "../../../src/ops/rows/loss.js";
import { lossMaximum, lossOfSums, lossSums } from "../../../src/ops/rows/loss-parts.js";
import { Scope } from "../../../src/tensor/scope.js";
import { crossEntropyCase } from "../../operations/rows/loss.js";
import { differenceOf } from "../../values/difference.js";
import { download, upload } from "../../values/plain.js";
import { describeLaws, scoped, useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 2 });

it("all classes in one part give the losses of crossEntropy", () => {
  fc.assert(
    fc.property(crossEntropyCase, ({ logits, targets, smoothing, ignore }) => {
      using _ = new Scope();
      const [x, labels] = [upload(backend(), logits), upload(backend(), targets)];
      const whole = crossEntropy(x, labels, { smoothing, ignore });
      const maximum = lossMaximum(x);
      const sums = lossSums({ logits: x, targets: labels, maximum }, { first: 0, smoothing });
      const loss = lossOfSums(sums, labels, { classes: logits.matrix[1], smoothing, ignore });
      expect(differenceOf(download(maximum), download(whole.maximum))).toBeUndefined();
      expect(differenceOf(download(loss), download(whole.loss))).toBeUndefined();
    }),
    { numRuns: 60 },
  );
});

scoped("a target of another part is -0, which changes no sum", () => {
  const logits = tensor(backend(), [1, 3, 2, 5], [2, 2]);
  const maximum = lossMaximum(logits);
  expect([...maximum.dataSync()]).toEqual([3, 5]);
  const targets = tensor(backend(), Int32Array.of(4, 7), [2], "i32");
  const sums = lossSums({ logits, targets, maximum }, { first: 4, smoothing: 0.5 });
  expect(sums.shape).toEqual([3, 2]);
  const [, , first, second, ...distances] = sums.dataSync();
  expect([first, second]).toEqual([-2, -0]);
  expect(distances).toEqual([-2, -3]);
});

scoped("what does not fit is refused", () => {
  const logits = tensor(backend(), [1, 2], [1, 2]);
  const targets = tensor(backend(), Int32Array.of(0), [1], "i32");
  const maximum = lossMaximum(logits);
  const sums = lossSums({ logits, targets, maximum }, { first: 0 });
  expect(() => lossMaximum(empty(backend(), "e4m3", [1, 2]))).toThrow(DTypeError);
  expect(() => lossSums({ logits, targets, maximum: logits }, { first: 0 })).toThrow(ShapeError);
  expect(() => lossSums({ logits, targets: maximum, maximum }, { first: 0 })).toThrow(DTypeError);
  expect(() => lossOfSums(sums, targets, { classes: 2, smoothing: 0.1 })).toThrow(ShapeError);
  expect(() => lossOfSums(sums, empty(backend(), "i32", [2]), { classes: 2 })).toThrow(ShapeError);
  const inputs = { grad: maximum, logits, targets, maximum, total: maximum };
  expect(() => crossEntropyBackward(inputs, { first: 3, classes: 4 })).toThrow("classes is 4");
});

const LOSSES = ["lossMaximum", "lossSums", "lossOfSums"] as const;
describeLaws(useBackend({ threads: 2 }), LOSSES, { runs: 100, seed: 20 });
