// Models of attention: a row has the bits of its own query, its visible keys and their values.
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../src/index.js";
import { type Argument, Call } from "../../../src/referee/call.js";
import { roundedValue } from "../../../src/referee/conversions.js";
import { NotModelled } from "../../../src/referee/not-modelled.js";
import { callWitness, OPERATORS, type OperatorRow } from "../../../src/referee/table.js";
import type { Value } from "../../../src/referee/value.js";
import { draws } from "../harness/draws.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

const SCHEMAS = [
  "aten::_scaled_dot_product_flash_attention",
  "aten::_scaled_dot_product_efficient_attention",
  "aten::_scaled_dot_product_cudnn_attention",
];

interface Operands {
  readonly query: Value;
  readonly key: Value;
  readonly value: Value;
}

function callOf(schema: string, operands: Operands, options: Readonly<Record<string, Argument>> = {}): Call {
  const { parameters } = OPERATORS[schema] as OperatorRow;
  return new Call(backend, parameters.split(" "), [], { ...operands, ...options });
}

/** The output and the logarithms of the sums. */
function results(
  schema: string,
  operands: Operands,
  options: Readonly<Record<string, Argument>> = {},
): readonly [Value, Value] {
  const [out, logSums] = (OPERATORS[schema] as OperatorRow).model(callOf(schema, operands, options));
  return [out as Value, logSums as Value];
}

/** Bytes of rows [from, to) of each matrix of a value of matrices, or of each vector of a value of vectors. */
function rows({ shape, bytes }: Value, from: number, to: number): readonly Uint8Array[] {
  const [batch = 1, heads = 1, count = 1] = shape;
  const size = bytes.length / (batch * heads * count);
  return Array.from({ length: batch * heads }, (_, i) =>
    bytes.slice((i * count + from) * size, (i * count + to) * size),
  );
}

/** The value of the first `count` rows of each matrix. */
function firstRows(x: Value, count: number): Value {
  const [batch = 1, heads = 1, , width = 1] = x.shape;
  return {
    dtype: x.dtype,
    shape: [batch, heads, count, width],
    bytes: new Uint8Array(Buffer.concat(rows(x, 0, count))),
  };
}

const numbers = fc.integer({ min: -4096, max: 4096 }).map((x) => x / 1024);

function tensors(dtype: "BF16" | "F16", shape: readonly number[], seed: number): Value {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = fc.sample(numbers, { seed, numRuns: count });
  return roundedValue(backend, dtype, shape, Float32Array.from(values));
}

const calls = fc.record({
  dtype: fc.constantFrom("BF16" as const, "F16" as const),
  heads: fc.integer({ min: 1, max: 2 }),
  count: fc.integer({ min: 2, max: 140 }),
  width: fc.constantFrom(8, 32, 64, 96),
  seed: fc.nat(1000),
});

function operandsOf({
  dtype,
  heads,
  count,
  width,
  seed,
}: {
  dtype: "BF16" | "F16";
  heads: number;
  count: number;
  width: number;
  seed: number;
}): Operands {
  const [query, key, value] = [0, 1, 2].map((i) => tensors(dtype, [1, heads, count, width], seed + i));
  return { query, key, value } as Operands;
}

describe.each(SCHEMAS)("%s", (schema) => {
  it("has in a causal row the bits of the row without the keys after it", () => {
    fc.assert(
      fc.property(calls, fc.nat(), (call, place) => {
        const operands = operandsOf({ ...call, width: 64 });
        const row = place % call.count;
        const prefixOperands = {
          query: operands.query,
          key: firstRows(operands.key, row + 1),
          value: firstRows(operands.value, row + 1),
        };
        const causal = results(schema, operands, { is_causal: true });
        const prefixResults = results(schema, prefixOperands, { is_causal: false });
        for (const [i, x] of causal.entries())
          expect(rows(x, row, row + 1)).toEqual(rows(prefixResults[i] as Value, row, row + 1));
      }),
      { numRuns: draws(20) },
    );
  });

  it("computes each head by itself", () => {
    fc.assert(
      fc.property(calls, fc.boolean(), (call, isCausal) => {
        const operands = operandsOf({ ...call, heads: 2 });
        const batchResults = results(schema, operands, { is_causal: isCausal });
        const secondBatch = (x: Value): Value => ({
          ...x,
          shape: [1, 1, ...x.shape.slice(2)],
          bytes: x.bytes.slice(x.bytes.length / 2),
        });
        const { query, key, value } = operands;
        const secondOperands = {
          query: secondBatch(query),
          key: secondBatch(key),
          value: secondBatch(value),
        };
        expect(results(schema, secondOperands, { is_causal: isCausal })).toEqual(
          batchResults.map(secondBatch),
        );
      }),
      { numRuns: draws(20) },
    );
  });

  it("has no model for dropout, infinities, NaN, f32, or keys and values of different shapes", () => {
    const operands = operandsOf({ dtype: "BF16", heads: 1, count: 4, width: 32, seed: 1 });
    const withOperand = (name: keyof Operands, x: Value): Operands => ({ ...operands, [name]: x });
    const constant = (dtype: "BF16" | "F32", x: number): Value =>
      roundedValue(backend, dtype, [1, 1, 4, 32], new Float32Array(4 * 32).fill(x));
    expect(() => results(schema, operands, { dropout_p: 0.5 })).toThrow(NotModelled);
    for (const name of ["query", "key", "value"] as const) {
      expect(() => results(schema, withOperand(name, constant("F32", 1)))).toThrow(NotModelled);
      for (const x of [Number.NaN, Number.POSITIVE_INFINITY])
        expect(() => results(schema, withOperand(name, constant("BF16", x)))).toThrow(NotModelled);
    }
    expect(() => results(schema, withOperand("value", tensors("BF16", [1, 1, 4, 16], 1)))).toThrow(
      NotModelled,
    );
    const largeValues = constant("BF16", 1e30);
    expect(() => results(schema, { ...operands, query: largeValues, key: largeValues })).toThrow(NotModelled);
  });

  it("has a witness for the widths that were compared", () => {
    const witness = (width: number) => {
      const operands = operandsOf({ dtype: "BF16", heads: 1, count: 2, width, seed: 1 });
      return callWitness(OPERATORS[schema] as OperatorRow, callOf(schema, operands))?.chip;
    };
    expect([8, 32, 64, 96, 128, 192].map(witness)).toEqual([
      undefined,
      "h200",
      "h200",
      "h200",
      "h200",
      undefined,
    ]);
  });
});

describe("flash attention", () => {
  const schema = "aten::_scaled_dot_product_flash_attention";

  it("of grouped heads is that of repeated keys and values", () => {
    const { query } = operandsOf({ dtype: "F16", heads: 4, count: 9, width: 32, seed: 1 });
    const { key, value } = operandsOf({ dtype: "F16", heads: 2, count: 9, width: 32, seed: 5 });
    const repeatHeads = (x: Value): Value => {
      const [firstHead, secondHead] = rows(x, 0, 9) as [Uint8Array, Uint8Array];
      const bytes = new Uint8Array(Buffer.concat([firstHead, firstHead, secondHead, secondHead]));
      return { ...x, shape: [1, 4, 9, 32], bytes };
    };
    const groupedResults = results(schema, { query, key, value }, { is_causal: true });
    expect(groupedResults).toEqual(
      results(schema, { query, key: repeatHeads(key), value: repeatHeads(value) }, { is_causal: true }),
    );
  });

  it("has zeros and an infinite logarithm for rows without visible keys, before the last keys", () => {
    const { query } = operandsOf({ dtype: "BF16", heads: 1, count: 5, width: 32, seed: 1 });
    const { key, value } = operandsOf({ dtype: "BF16", heads: 1, count: 3, width: 32, seed: 2 });
    const [out, logSums] = results(schema, { query, key, value }, { is_causal: true });
    expect(rows(out, 0, 2)).toEqual([new Uint8Array(2 * 32 * 2)]);
    const logs = [...new Float32Array(logSums.bytes.slice().buffer)];
    expect(logs.map(Number.isFinite)).toEqual([false, false, true, true, true]);
  });
});

describe("cuDNN's attention", () => {
  const schema = "aten::_scaled_dot_product_cudnn_attention";
  const resultsOf = (options: Readonly<Record<string, Argument>>) => {
    const operands = operandsOf({ dtype: "BF16", heads: 1, count: 5, width: 32, seed: 1 });
    return (OPERATORS[schema] as OperatorRow).model(callOf(schema, operands, options));
  };

  it("has no logarithms if they are not asked for", () => {
    const shapes = (isSupported: boolean) =>
      resultsOf({ compute_log_sumexp: isSupported }).map(({ shape }) => shape.length);
    expect([true, false].map(shapes)).toEqual([
      [4, 4, 0, 0],
      [4, 0, 0],
    ]);
  });

  it("has a witness up to 1024 queries and keys, and up to 300 keys for one query", () => {
    const witness = (queries: number, keys: number) => {
      const zeroRows = (rows: number): Value =>
        roundedValue(backend, "F16", [1, 1, rows, 32], new Float32Array(rows * 32));
      const call = callOf(schema, { query: zeroRows(queries), key: zeroRows(keys), value: zeroRows(keys) });
      return callWitness(OPERATORS[schema] as OperatorRow, call)?.chip;
    };
    expect([witness(1024, 1024), witness(1, 300)]).toEqual(["h200", "h200"]);
    expect([witness(1025, 8), witness(8, 1025), witness(1, 301)]).toEqual(Array(3).fill(undefined));
  });
});

describe("efficient attention", () => {
  it("pads the logarithms with infinities, and has none if they are not asked for", () => {
    const schema = "aten::_scaled_dot_product_efficient_attention";
    const operands = operandsOf({ dtype: "BF16", heads: 1, count: 5, width: 32, seed: 1 });
    const [, logSums] = results(schema, operands, { compute_log_sumexp: true });
    expect(logSums.shape).toEqual([1, 1, 32]);
    const logs = [...new Float32Array(logSums.bytes.slice().buffer)];
    expect(logs.slice(5)).toEqual(Array(27).fill(Number.POSITIVE_INFINITY));
    expect(results(schema, operands, { compute_log_sumexp: false })[1].shape).toEqual([1, 1, 0]);
  });
});
