// Batches of f32 products: each element is a chain of fused multiply-adds, and attention by MATH consists of them.
import { createHash } from "node:crypto";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../src/index.js";
import { type Argument, Call } from "../../../src/referee/call.js";
import { conversion, roundedValue, toFloat32 } from "../../../src/referee/conversions.js";
import { NotModelled } from "../../../src/referee/not-modelled.js";
import { callWitness, OPERATORS, type OperatorRow } from "../../../src/referee/table.js";
import { reshape, transposeLastDims, type Value } from "../../../src/referee/value.js";
import { draws, sampleCases } from "../harness/draws.js";
import { createArguments, recordedCalls } from "../harness/referee/torch-operators.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

function callOf(schema: string, args: readonly Argument[]): Call {
  return new Call(backend, (OPERATORS[schema] as OperatorRow).parameters.split(" "), args, {});
}

const resultOf = (schema: string, ...args: readonly Argument[]): Value =>
  (OPERATORS[schema] as OperatorRow).model(callOf(schema, args))[0] as Value;

const f32 = (shape: readonly number[], values: readonly number[]): Value =>
  roundedValue(backend, "F32", shape, Float32Array.from(values));

const numbers = (x: Value): readonly number[] => [...toFloat32(backend, x)];

describe("a batch of f32 products", () => {
  it("is exact where all partial sums are", () => {
    const sizes = fc.record({
      batch: fc.constantFrom(2, 3),
      m: fc.constantFrom(2, 9),
      n: fc.constantFrom(2, 8),
      k: fc.nat(20),
    });
    fc.assert(
      fc.property(
        sizes,
        fc.infiniteStream(fc.integer({ min: -999, max: 999 })),
        ({ batch, m, n, k }, stream) => {
          const takeNumbers = (count: number) => [...stream.take(count)];
          const [a, b] = [takeNumbers(batch * m * k), takeNumbers(batch * k * n)];
          const expected = Array.from({ length: batch * m * n }, (_, i) => {
            const [row, column] = [Math.floor(i / n), i % n];
            const begin = Math.floor(row / m) * k;
            let sum = 0;
            for (let j = 0; j < k; j++)
              sum += (a[row * k + j] as number) * (b[(begin + j) * n + column] as number);
            return sum;
          });
          expect(numbers(resultOf("aten::bmm", f32([batch, m, k], a), f32([batch, k, n], b)))).toEqual(
            expected,
          );
        },
      ),
      { numRuns: draws(50) },
    );
  });

  it("rounds once after each product, in ascending k", () => {
    // 1 + 2^-24 is a tie that rounds to 1, and a product of 1 + 2^-12 with itself keeps 2^-24 until it is added
    const tinyValue = 2 ** -24;
    const sumOf = (a: readonly number[], b: readonly number[]) =>
      numbers(
        resultOf(
          "aten::bmm",
          f32([2, 2, a.length], Array(4).fill(a).flat()),
          f32(
            [2, b.length, 2],
            Array(2)
              .fill(b.flatMap((x) => [x, x]))
              .flat(),
          ),
        ),
      )[0];
    expect(sumOf([1, tinyValue, tinyValue], [1, 1, 1])).toBe(1);
    expect(sumOf([tinyValue, tinyValue, 1], [1, 1, 1])).toBe(1 + 2 ** -23);
    const factor = 1 + 2 ** -12;
    expect(sumOf([-1, factor], [1 + 2 ** -11, factor])).toBe(tinyValue);
  });

  it("has no model for one matrix, one row or one column, and a witness from 8 rows and columns on", () => {
    const zeros = (...shape: readonly number[]): Value =>
      f32(shape, Array(shape.reduce((x, y) => x * y)).fill(0));
    for (const [batch, m, n] of [
      [1, 8, 8],
      [2, 1, 8],
      [2, 8, 1],
    ] as const)
      expect(() => resultOf("aten::bmm", zeros(batch, m, 4), zeros(batch, 4, n))).toThrow(NotModelled);
    expect(() => resultOf("aten::bmm", zeros(2, 8, 4), conversion(backend, zeros(2, 4, 8), "BF16"))).toThrow(
      NotModelled,
    );
    const witness = (m: number, n: number) =>
      callWitness(
        OPERATORS["aten::bmm"] as OperatorRow,
        callOf("aten::bmm", [zeros(2, m, 4), zeros(2, 4, n)]),
      )?.chip;
    expect([witness(8, 8), witness(7, 8), witness(8, 7), witness(513, 8)]).toEqual([
      "h200",
      undefined,
      undefined,
      undefined,
    ]);
  });
});

/** Attention by MATH: bmm of the operands times sqrt(scale), the causal mask, softmax and bmm, in f32. */
function mathAttention(query: Value, key: Value, value: Value, isCausal: boolean): readonly [Value, Value] {
  const { dtype, shape } = query;
  const [batch = 0, heads = 0, queries = 0, width = 0] = shape;
  const keys = key.shape[2] as number;
  const wide = (x: Value, rows: number): Value =>
    reshape(conversion(backend, x, "F32"), [batch * heads, rows, width]);
  const factor = Math.sqrt(1 / Math.sqrt(width));
  const scaledQuery = resultOf("aten::mul.Tensor", wide(query, queries), factor);
  const scaledKey = transposeLastDims(resultOf("aten::mul.Tensor", wide(key, keys), factor));
  const scores = toFloat32(backend, resultOf("aten::bmm", scaledQuery, scaledKey));
  const maskedScores = scores.map((score, i) =>
    isCausal && i % keys > Math.floor(i / keys) % queries ? Number.NEGATIVE_INFINITY : score,
  );
  const fullShape = [batch * heads, queries, keys];
  const probabilities = resultOf(
    "aten::_softmax",
    roundedValue(backend, "F32", fullShape, maskedScores),
    2,
    false,
  );
  const out = resultOf("aten::bmm", probabilities, wide(value, keys));
  return [conversion(backend, out, dtype), conversion(backend, probabilities, dtype)];
}

describe("attention by MATH of several heads", () => {
  const calls = recordedCalls("attention").filter(
    ({ schema, outputs }) =>
      schema === "aten::_scaled_dot_product_attention_math" && (outputs[0]?.[1][1] as number) > 1,
  );

  it("was recorded", () => {
    expect(calls.length).toBe(20);
  });

  it.each(sampleCases(calls, 2).map((call) => [call.id, call] as const))(
    "has the bits of its operators, call %i",
    (_, call) => {
      const [query, key, value] = createArguments(backend, call) as [Value, Value, Value];
      const results = mathAttention(query, key, value, call.args[5] === true);
      const hashes = results.map(({ bytes }) =>
        createHash("sha256").update(bytes).digest("hex").slice(0, 16),
      );
      expect(hashes).toEqual(call.outputs.map(([, , hash]) => hash));
    },
  );
});
