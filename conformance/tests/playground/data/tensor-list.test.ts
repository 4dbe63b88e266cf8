/** The page lists at most a few tensors: the tensors whose names contain a text, and always the selected one. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { countOf, listOf, MAX_LISTED } from "../../../../playground/src/data/tensor-list.js";
import type { TensorEntry } from "../../../../src/io/header/header.js";

function fileOf(plainCount: number, quantizedCount: number) {
  const entry = (name: string): TensorEntry => ({ name, dtype: "F32", shape: [1], begin: 0, end: 4 });
  return {
    tensors: new Map(Array.from({ length: plainCount }, (_, i) => [`t${i}`, entry(`t${i}`)])),
    // every second chosen name is the name of a tensor of the file
    quantized: new Map(
      Array.from(
        { length: quantizedCount },
        (_, i) => [i % 2 ? `t${i}` : `q${i}`, { kind: "mxfp8", shape: [1] }] as const,
      ),
    ),
    faults: new Map([["t0", "codes without a scale"]]),
  };
}

describe("the list of tensors", () => {
  it("has the first ones that match, each once, and the chosen one", () => {
    const sizes = fc.oneof(
      fc.nat(20),
      fc.integer({ min: MAX_LISTED - 2, max: MAX_LISTED + 2 }),
      fc.constant(3000),
    );
    fc.assert(
      fc.property(
        sizes,
        fc.nat(40),
        fc.constantFrom("", "t", "q", "1", "99", "none"),
        fc.nat(4000),
        (plainCount, quantizedCount, isPart, pick) => {
          const file = fileOf(plainCount, quantizedCount);
          const names = [...new Set([...file.quantized.keys(), ...file.tensors.keys()])];
          const chosenName = names[pick] ?? "absent";
          const listedNames = listOf(file, isPart, chosenName).map(({ value }) => value);
          expect(countOf(file)).toBe(names.length);
          expect(listedNames.length).toBeLessThanOrEqual(MAX_LISTED);
          expect(listedNames.includes(chosenName)).toBe(names.includes(chosenName));
          const matchingNames = names.filter((name) => name.includes(isPart) && name !== chosenName);
          const otherNames = listedNames.filter((name) => name !== chosenName);
          expect(otherNames).toEqual(matchingNames.slice(0, otherNames.length));
          const room = names.includes(chosenName) ? MAX_LISTED - 1 : MAX_LISTED;
          expect(otherNames.length).toBeGreaterThanOrEqual(Math.min(matchingNames.length, room - 1));
        },
      ),
    );
  });
});
