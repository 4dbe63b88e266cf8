/** Lists of optimizer steps, and of gradients whose norm is computed, have on a GPU the bits of the reference. */
import * as fc from "fast-check";
import { it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { gradNorm } from "../../../src/ops/update/grad-norm.js";
import { Scope } from "../../../src/tensor/scope.js";
import { wideTensor } from "../../arbitraries/wide.js";
import { assertSameAnswer } from "../../laws/laws.js";
import type { PlainTensor } from "../../values/plain.js";
import { download, upload } from "../../values/plain.js";
import { describeOnGpu, RUNS, SEED, useGpu } from "../harness/gpu/gpu.js";
import {
  adamwList,
  adamwOneByOne,
  adamwTogether,
  sgdList,
  sgdOneByOne,
  sgdTogether,
} from "../harness/step-lists.js";

/** Lengths around those of one launch, 32 and 512. */
const length = fc.oneof(fc.nat({ max: 70 }), fc.constantFrom(31, 32, 33, 511, 512, 513, 1100));
const options = { numRuns: Math.ceil(RUNS / 4), seed: SEED };

function normOn(backend: Backend, grads: readonly PlainTensor[]) {
  using _ = new Scope();
  const { norm, factor } = gradNorm(
    grads.map((grad) => upload(backend, grad)),
    { maxNorm: 1 },
  );
  return { norm: download(norm), factor: download(factor) };
}

describeOnGpu("lists on a GPU have the bits of the reference", () => {
  const { gpu, reference } = useGpu();

  it("steps of sgd", () => {
    fc.assert(
      fc.property(sgdList(length), (list) =>
        assertSameAnswer(sgdTogether(gpu(), list), sgdOneByOne(reference(), list)),
      ),
      options,
    );
  });

  it("steps of adamw", () => {
    fc.assert(
      fc.property(adamwList(length), (list) =>
        assertSameAnswer(adamwTogether(gpu(), list), adamwOneByOne(reference(), list)),
      ),
      options,
    );
  });

  it("the norm of gradients", () => {
    const shape = fc.constantFrom([0], [1], [33], [4095], [4096], [4097], [3, 5461]);
    const grads = length.chain((count) =>
      fc.array(
        shape.chain((drawn) => wideTensor(drawn)),
        { minLength: Math.max(count, 1), maxLength: Math.max(count, 1) },
      ),
    );
    fc.assert(
      fc.property(grads, (drawn) => assertSameAnswer(normOn(gpu(), drawn), normOn(reference(), drawn))),
      options,
    );
  });
});
