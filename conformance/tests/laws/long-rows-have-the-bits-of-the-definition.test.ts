/** Rows with more elements than the reference computes at a time have the bits of the definition, in every operation on rows. */
import * as fc from "fast-check";
import { describe, it } from "vitest";
import { Scope } from "../../../src/tensor/scope.js";
import { wideTensor } from "../../arbitraries/wide.js";
import { assertSameAnswer } from "../../laws/laws.js";
import type { Operation } from "../../operations/operation.js";
import { OPERATIONS, type OperationName } from "../../operations/operations.js";
import { PlainTensor } from "../../values/plain.js";
import { derivedSeed, draws } from "../harness/draws.js";
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

/** Whether a tensor has rows longer than a buffer, and no tensor is empty. */
function hasLongRows(input: object): boolean {
  const tensors = Object.values(input).filter((value) => value instanceof PlainTensor);
  return (
    tensors.every(({ shape }) => !shape.includes(0)) &&
    tensors.some(({ shape }) => (shape.at(-1) as number) > BUFFER_ELEMENTS)
  );
}

/** Inputs of mean squared errors. The inputs that their laws draw have shorter rows. */
const SHAPE = [2, 2 * BUFFER_ELEMENTS + 1];
const errors = fc.record({
  x: wideTensor(SHAPE),
  target: wideTensor(SHAPE),
  grad: wideTensor([2], { dtype: "f32" }),
});

describe("long rows", () => {
  const compare = (name: OperationName, inputs: fc.Arbitrary<object>): void => {
    using _scope = new Scope();
    const { run, oracle } = OPERATIONS[name] as Operation<object>;
    for (const input of fc.sample(inputs, { numRuns: draws(30, 6), seed: derivedSeed(512) }))
      assertSameAnswer(run(backend(), input), oracle(input));
  };

  it.each(NAMES)("of %s", (name) => {
    const { arbitrary } = OPERATIONS[name] as Operation<object>;
    compare(name, arbitrary.filter(hasLongRows));
  });

  it.each(["mse", "mseBackward"] as const)("of %s", (name) => compare(name, errors));
});
