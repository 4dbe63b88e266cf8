/**
 * The special-function unit of the reference gives the bits that an H100 and an H200 returned (numerics.md §7.11), and the oracle
 * gives the reference's bits for each instruction and math function.
 */
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { SPECIAL_FUNCTION } from "../../../src/formats/contract.gen.js";
import { SPECIAL_FUNCTIONS, type SpecialFunctionRow } from "../../../src/formats/special-functions.js";
import { SPECIAL_FUNCTIONS as ORACLE } from "../../oracle/core/math-functions.js";
import { openStems, type Stems } from "../harness/accuracy/stems.js";
import { draws, sampleCases } from "../harness/draws.js";
import {
  bitsToValue,
  hashResults,
  RECORDED_FUNCTIONS,
  SPECIAL_INPUTS,
  SPECIAL_RESULTS,
  UNARY_FUNCTION_NAMES,
  type UnaryFunctionName,
  valueToBits,
} from "../harness/special-functions.js";

let stems: Stems;
beforeAll(async () => {
  stems = await openStems("special");
});

const rowOf = (name: UnaryFunctionName): SpecialFunctionRow => SPECIAL_FUNCTIONS[name];

/** The bits of a result for the bits of an argument, both of the type of the instruction. */
function bitsOf(name: UnaryFunctionName, input: number): number {
  const { kind, dtype } = rowOf(name);
  const argument = dtype === "f32" ? input : valueToBits("f32", bitsToValue(dtype, input));
  const compute = kind < SPECIAL_FUNCTION.expf ? stems.direct.specialFunction : stems.direct.mathFunction;
  return (compute?.(kind, argument) as number) >>> 0;
}

it.each(SPECIAL_RESULTS)("gives the recorded results of special inputs of %s", (name, results) => {
  expect(SPECIAL_INPUTS.map((input) => bitsOf(name, input))).toEqual(results);
});

it.each(sampleCases(RECORDED_FUNCTIONS.recordings))(
  "gives the recorded $function, exponent $exponent",
  (recordedTable) => {
    expect(hashResults(recordedTable, (input) => bitsOf(recordedTable.function, input))).toBe(
      recordedTable.hash,
    );
  },
);

describe("the oracle", () => {
  const names = UNARY_FUNCTION_NAMES;

  it.each(names)("equals the reference for special inputs of %s", (name) => {
    for (const input of inputsOf(name)) expect(oracle(name, input)).toBe(bitsOf(name, input));
  });

  it.each(names)("equals the reference for drawn inputs of %s", (name) => {
    const { dtype } = rowOf(name);
    const input = fc.integer({ min: 0, max: dtype === "f32" ? 2 ** 32 - 1 : 65_535 });
    fc.assert(
      fc.property(input, (bits) => {
        expect(oracle(name, bits)).toBe(bitsOf(name, bits));
      }),
      { numRuns: draws(20_000) },
    );
  });
});

function oracle(name: UnaryFunctionName, input: number): number {
  const { dtype } = rowOf(name);
  return valueToBits(dtype, ORACLE[name](bitsToValue(dtype, input)));
}

/** Arguments next to each power of two, and the limits of the type. */
function inputsOf(name: UnaryFunctionName): number[] {
  const [unit, count] = rowOf(name).dtype === "f32" ? [2 ** 23, 512] : [2 ** 7, 512];
  return Array.from({ length: count }, (_, i) => [i * unit, i * unit + 1, (i + 1) * unit - 1]).flat();
}
