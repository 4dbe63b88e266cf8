/** A dead matrix in a stack is found, at any position and for codes of any number of bits. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { CODE_TYPES } from "../../../../../src/checkpoints/stored/code-types.js";
import { conventionOf } from "../../../../../src/checkpoints/stored/conventions.js";
import { fileBytes } from "../../../../../src/io/dtypes.js";
import { draws } from "../../../harness/draws.js";
import { reportOfContents, type StoredTensor } from "../../files/checkpoints.js";
import { addWeight, contentsOf, drawsFrom, type Form } from "../../files/drawn-files.js";

/** Stacks whose matrices follow one another in codes and in scales. */
const FORMS: readonly Form[] = [
  { name: "ct-mxfp4", kind: "group" },
  { name: "ct-mxfp6", kind: "group" },
  { name: "ct-mxfp8", kind: "group" },
  { name: "ct-nvfp4", kind: "group" },
  { name: "ct-float", kind: "row" },
  { name: "block-fp8", kind: "tile" },
  { name: "vllm-mxfp4", kind: "group" },
  { name: "gpt-oss", kind: "group" },
];

const cases = fc.record({
  form: fc.constantFrom(...FORMS),
  matrices: fc.integer({ min: 2, max: 5 }),
  dead: fc.nat(),
  /** Whether the scales of the dead matrix are lost as well: all are 1 or 0. */
  withScales: fc.boolean(),
  seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
});

it("a matrix of zeros in a stack is an error", async () => {
  await fc.assert(
    fc.asyncProperty(cases, async ({ form, matrices, dead: deadIndex, withScales, seed }) => {
      const [rows, columns] = [16, 64];
      const { codes, scale, type } = conventionOf(form.name);
      const tensors = new Map<string, StoredTensor>();
      addWeight(tensors, "m.experts.w13", form, [matrices * rows, columns], drawsFrom(seed));
      for (const { suffix } of [codes, scale]) {
        const stack = tensors.get(`m.experts.w13${suffix}`) as StoredTensor;
        const [lines = 0, ...otherSizes] = stack.shape;
        if (suffix === scale.suffix && form.kind === "tile") {
          // one block for each matrix
          const scalesOfMatrices = Array.from({ length: matrices }, () => [...stack.bytes.subarray(0, 4)]);
          Object.assign(stack, { shape: [matrices, 1, 1], bytes: Uint8Array.from(scalesOfMatrices.flat()) });
        } else Object.assign(stack, { shape: [matrices, lines / matrices, ...otherSizes] });
      }
      const errorNames = async (): Promise<readonly string[]> =>
        (await reportOfContents(contentsOf(tensors, undefined))).findings
          .filter(({ severity }) => severity === "error")
          .map(({ name }) => name);
      expect(await errorNames()).toEqual([]);
      const tensor = tensors.get(`m.experts.w13${codes.suffix}`) as StoredTensor;
      const size = (rows * columns * CODE_TYPES[type].bits) / 8;
      expect(size * matrices).toBe(fileBytes(tensor.dtype, tensor.shape));
      const matrix = deadIndex % matrices;
      tensor.bytes.fill(0, matrix * size, (matrix + 1) * size);
      const scales = tensors.get(`m.experts.w13${scale.suffix}`) as StoredTensor;
      const scaleBytes = scales.bytes.length / matrices;
      const zeroScale = ["U8", "F8_E8M0"].includes(scales.dtype) ? 127 : 0;
      if (withScales) scales.bytes.fill(zeroScale, matrix * scaleBytes, (matrix + 1) * scaleBytes);
      expect(await errorNames()).toEqual(["matrix-dead"]);
    }),
    { numRuns: draws(30) },
  );
});
