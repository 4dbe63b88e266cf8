/** Rows with more elements than the reference computes at a time have the bits of the definition, in every operation on rows. */
import * as fc from "fast-check";
import { describe, it } from "vitest";
import { Scope } from "../../../src/tensor/scope.js";
import { assertSameAnswer } from "../../laws/laws.js";
import type { Operation } from "../../operations/operation.js";
import { OPERATIONS, type OperationName } from "../../operations/operations.js";
import { PlainTensor } from "../../values/plain.js";
import { draws, seeded } from "../harness/draws.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend();

/** The number of f32 elements in a buffer of the reference (assembly/core/scratch.ts). */
const BUFFER_ELEMENTS = 512;

/** The operations whose drawn inputs sometimes have longer rows. */
const NAMES = [
  "embedding",
  "embeddingBackward",
  "takeRows",
  "combineRows",
  "rowDots",
  "rotaryEmbedding",
] as const satisfies readonly OperationName[];

/** Whether a tensor has longer rows, and no tensor is empty. */
function hasLongRows(input: object): boolean {
  const tensors = Object.values(input).filter((each) => each instanceof PlainTensor);
  return (
    tensors.every(({ shape }) => !shape.includes(0)) &&
    tensors.some(({ shape }) => (shape.at(-1) as number) > BUFFER_ELEMENTS)
  );
}

describe("long rows", () => {
  it.each(NAMES)("of %s", (name) => {
    using _scope = new Scope();
    const { arbitrary, run, oracle } = OPERATIONS[name] as Operation<object>;
    const inputs = fc.sample(arbitrary.filter(hasLongRows), { numRuns: draws(30, 6), seed: seeded(512) });
    for (const input of inputs) assertSameAnswer(run(backend(), input), oracle(input));
  });
});
