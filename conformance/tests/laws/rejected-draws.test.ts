/** Inputs for a subject with limited support are drawn within it: few draws are rejected, for every operation. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { allows } from "../../arbitraries/supported.js";
import { aimedInputs } from "../../laws/supported.js";
import { OPERATION_NAMES, OPERATIONS, type OperationName } from "../../operations/operations.js";
import { PlainTensor } from "../../values/plain.js";
import { SEED, sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";

const DRAWS = 120;
/** The maximum number of rejected draws for each supported one. */
const MAX_REJECTED = 30;

type Leaf = readonly [path: string, value: unknown];

/** The restrictable fields of an input: names and flags, by path. */
function leavesOf(value: unknown, path = ""): readonly Leaf[] {
  if (value instanceof PlainTensor || ArrayBuffer.isView(value) || Array.isArray(value)) return [];
  if (typeof value === "string" || typeof value === "boolean") return [[path, value]];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, field]) =>
    leavesOf(field, path === "" ? name : `${path}.${name}`),
  );
}

const drawInput = (operation: OperationName, seed: number): unknown =>
  fc.sample<unknown>(OPERATIONS[operation].arbitrary as fc.Arbitrary<unknown>, { numRuns: 1, seed })[0];

function rejectedFor(
  operation: OperationName,
  supported: Readonly<Record<string, readonly unknown[]>>,
): number {
  const inputs = fc.sample(aimedInputs(operation, supported), { numRuns: DRAWS, seed: SEED });
  const numAllowed = inputs.filter((input) => allows(supported, input)).length;
  return (DRAWS - numAllowed) / Math.max(numAllowed, 0.5);
}

describe("a subject that supports one value of a field", () => {
  it.each(sampleCases(OPERATION_NAMES, 12))("of %s gets it in few draws", (operation) => {
    const leaves = leavesOf(drawInput(operation, SEED));
    // some fields of each operation, because each costs many draws
    const stride = Math.ceil(leaves.length / (IS_FULL ? 3 : 1) || 1);
    for (const [path, value] of leaves.filter((_, i) => (i + SEED) % stride === 0))
      expect(rejectedFor(operation, { [path]: [value] }), path).toBeLessThanOrEqual(MAX_REJECTED);
  });
});

describe("a subject that supports one recipe, copy, layout and type", () => {
  const fields: { readonly [K in OperationName]?: RegExp } = {
    quantize: /^spec\./,
    dequantize: /^(spec\.|direction|scaleLayout|dtype)/,
    encode: /^format/,
  };
  it.each(Object.keys(fields) as OperationName[])("of %s gets them in few draws", (operation) => {
    const leaves = leavesOf(drawInput(operation, SEED)).filter(([path]) => fields[operation]?.test(path));
    const supported = Object.fromEntries(leaves.map(([path, value]) => [path, [value]]));
    expect(rejectedFor(operation, supported)).toBeLessThanOrEqual(MAX_REJECTED);
  });
});
