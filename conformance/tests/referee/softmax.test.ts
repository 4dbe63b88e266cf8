// Softmax and its gradient for arguments without a recorded call: f16 inputs with f32 gradients, and non-finite inputs.

import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../src/index.js";
import { type Argument, Call } from "../../../src/referee/call.js";
import { conversion } from "../../../src/referee/conversions.js";
import { NotModelled } from "../../../src/referee/not-modelled.js";
import { callWitness, OPERATORS, type OperatorRow } from "../../../src/referee/table.js";
import type { Value } from "../../../src/referee/value.js";
import { numberBetween } from "../arbitraries/share.js";
import { draws } from "../harness/draws.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

const rowOf = (schema: string): OperatorRow => OPERATORS[schema] as OperatorRow;

function callOf(schema: string, args: readonly Argument[]): Call {
  return new Call(backend, rowOf(schema).parameters.split(" "), args, {});
}

const resultOf = (schema: string, args: readonly Argument[]): Value =>
  rowOf(schema).model(callOf(schema, args))[0] as Value;

function f32(shape: readonly number[], values: readonly number[]): Value {
  return { dtype: "F32", shape, bytes: new Uint8Array(Float32Array.from(values).buffer) };
}

const numbers = ({ bytes }: Value): readonly number[] => [...new Float32Array(bytes.slice().buffer)];

const GRADIENTS = ["aten::_softmax_backward_data", "aten::_log_softmax_backward_data"];
const RESULTS = ["aten::_softmax", "aten::_log_softmax"];

/** Row sizes, including sizes near those at which PyTorch switches kernels. */
const sizes = fc.oneof(fc.integer({ min: 1, max: 70 }), fc.constantFrom(1023, 1024, 1025, 1028, 4096, 5001));

/** The shape and the elements of a matrix. */
const matrices = fc.tuple(fc.integer({ min: 1, max: 3 }), sizes).chain(([rows, size]) =>
  fc.tuple(
    fc.constant([rows, size] as const),
    fc.array(numberBetween(-8, 8), {
      minLength: rows * size,
      maxLength: rows * size,
    }),
  ),
);

/** Lane l of a warp adds elements l, l + 32, …, then the sums of halves of the lanes. A shorter row has fewer lanes. */
function warpSum(row: readonly number[]): number {
  let lanes = Math.min(32, 2 ** Math.ceil(Math.log2(row.length)));
  const sums = new Float32Array(lanes);
  for (const [i, value] of row.entries()) sums[i % lanes] = (sums[i % lanes] as number) + value;
  for (lanes /= 2; lanes >= 1; lanes /= 2)
    for (let lane = 0; lane < lanes; lane++)
      sums[lane] = (sums[lane] as number) + (sums[lane + lanes] as number);
  return sums[0] as number;
}

describe.each(GRADIENTS)("%s", (schema) => {
  it("in f16 is that in f32, rounded once", () => {
    fc.assert(
      fc.property(matrices, ([shape, values]) => {
        const [grad, output] = [f32(shape, values), f32(shape, values.map(Math.abs))];
        const wide = resultOf(schema, [grad, output, 1, { dtype: "F32" }]);
        expect(resultOf(schema, [grad, output, 1, { dtype: "F16" }])).toEqual(
          conversion(backend, wide, "F16"),
        );
      }),
      { numRuns: 20 },
    );
  });

  it.each([1, 2, 3, 31, 32, 33, 64, 100, 512, 1023, 1024])(
    "sums a row of %i elements by one warp",
    (size) => {
      const elements = fc.array(numberBetween(-8, 8), {
        minLength: size,
        maxLength: size,
      });
      fc.assert(
        fc.property(elements, ([_, ...rest]) => {
          // the factors of the sum are 1, and the gradient of a zero is minus the sum
          const row = [0, ...rest];
          const output = f32(
            [1, size],
            row.map(() => (schema === GRADIENTS[0] ? 1 : 0)),
          );
          const [firstValue] = numbers(resultOf(schema, [f32([1, size], row), output, 1, { dtype: "F32" }]));
          expect(firstValue).toBe(0 - warpSum(row));
        }),
        { numRuns: draws(20) },
      );
    },
  );

  it("has no model for bf16 of f32 gradients, and no witness along another dimension than the last", () => {
    const x = f32([2, 2], [1, 2, 3, 4]);
    expect(() => resultOf(schema, [x, x, 1, { dtype: "BF16" }])).toThrow(NotModelled);
    expect(callWitness(rowOf(schema), callOf(schema, [x, x, 1, { dtype: "F32" }]))?.chip).toBe("h200");
    expect(callWitness(rowOf(schema), callOf(schema, [x, x, 0, { dtype: "F32" }]))).toBeUndefined();
    expect(callWitness(rowOf(schema), callOf(schema, [x, x, 1, { dtype: "F16" }]))).toBeUndefined();
  });
});

describe.each(RESULTS)("%s", (schema) => {
  it("of a row with NaN, infinity, or -infinity only is NaN, and other rows do not change", () => {
    const special = fc.constantFrom([Number.NaN], [Number.POSITIVE_INFINITY], undefined);
    fc.assert(
      fc.property(matrices, special, fc.nat(), ([[rows, size], values], [replacement] = [], position) => {
        const shape = [rows + 1, size];
        const row = Array.from({ length: size }, (_, i) =>
          replacement === undefined ? Number.NEGATIVE_INFINITY : i === position % size ? replacement : 1,
        );
        const results = numbers(resultOf(schema, [f32(shape, [...values, ...row]), 1, false]));
        expect(results.slice(rows * size)).toEqual(row.map(() => Number.NaN));
        const otherResults = resultOf(schema, [f32([rows, size], values), 1, false]);
        expect(results.slice(0, rows * size)).toEqual(numbers(otherResults));
      }),
      { numRuns: 20 },
    );
  });

  it("leaves -infinity out of the sum", () => {
    fc.assert(
      fc.property(sizes, (size) => {
        const row = Array.from({ length: size }, (_, i) => (i === size - 1 ? 3 : Number.NEGATIVE_INFINITY));
        const [firstLimit, last] = schema === "aten::_softmax" ? [0, 1] : [Number.NEGATIVE_INFINITY, 0];
        const expected = row.map((_, i) => (i === size - 1 ? last : firstLimit));
        expect(numbers(resultOf(schema, [f32([1, size], row), 1, false]))).toEqual(expected);
      }),
      { numRuns: 20 },
    );
  });
});
