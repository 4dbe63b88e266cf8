// A grouped product is the product of each group of rows, whatever the other groups are.
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../src/index.js";
import { type Argument, Call } from "../../../src/referee/call.js";
import { conversion } from "../../../src/referee/conversions.js";
import { groupedProduct, scaledGroupedProduct } from "../../../src/referee/grouped.js";
import { mmOptions, productModel, scaledOptions } from "../../../src/referee/products.js";
import type { Value } from "../../../src/referee/value.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

const [WIDTH, DEPTH] = [16, 32];
type Arguments = Readonly<Record<string, Argument>>;
const callOf = (kwargs: Arguments): Call => new Call(backend, [], [], kwargs);

const floats = (shape: readonly number[], seed: number): Value => {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = Float32Array.from({ length: count }, (_, i) => Math.sin(i * (seed + 0.37)) * 2 ** (i % 5));
  return { dtype: "F32", shape, bytes: new Uint8Array(values.buffer) };
};
const matrixOf = (x: Value, from: number, to: number, shape: readonly number[]): Value => {
  const size = x.bytes.length / (x.shape[0] ?? 1);
  return { ...x, shape, bytes: x.bytes.slice(from * size, to * size) };
};

function operands(
  boundaries: readonly number[],
  dtype: "BF16" | "F8_E4M3",
): Arguments & Record<"self" | "mat2" | "offs", Value> {
  const rows = boundaries.at(-1) ?? 0;
  return {
    self: conversion(backend, floats([rows, DEPTH], 1), dtype),
    mat2: conversion(backend, floats([boundaries.length, DEPTH, WIDTH], 2), dtype),
    offs: {
      dtype: "I32",
      shape: [boundaries.length],
      bytes: new Uint8Array(Int32Array.from(boundaries).buffer),
    },
  };
}

const sizes = fc
  .array(fc.integer({ min: 0, max: 5 }), { minLength: 1, maxLength: 4 })
  .filter((list) => list.some((size) => size > 0))
  .map((list) => list.map((_, i) => list.slice(0, i + 1).reduce((sum, size) => sum + size, 0)));

/** Each group that has rows: its number, and its first and last row. */
const groupsOf = (boundaries: readonly number[]) =>
  boundaries.map((to, i) => [i, boundaries[i - 1] ?? 0, to] as const).filter(([, from, to]) => to > from);

describe("a grouped product", () => {
  it("has the rows of the products of its groups", () => {
    fc.assert(
      fc.property(sizes, (boundaries) => {
        const args = operands(boundaries, "BF16");
        const [out] = groupedProduct(callOf(args)) as [Value];
        for (const [i, from, to] of groupsOf(boundaries)) {
          const self = matrixOf(args.self, from, to, [to - from, DEPTH]);
          const mat2 = matrixOf(args.mat2, i, i + 1, [DEPTH, WIDTH]);
          const [expected] = productModel(mmOptions)(callOf({ self, mat2 })) as [Value];
          expect(matrixOf(out, from, to, expected.shape)).toEqual({
            ...expected,
            bytes: expected.bytes.slice(),
          });
        }
      }),
    );
  });

  it("of FP8 has the rows of scaled products, if the scales are powers of two", () => {
    const power: Value = { dtype: "F32", shape: [], bytes: new Uint8Array(Float32Array.of(0.25).buffer) };
    fc.assert(
      fc.property(sizes, (boundaries) => {
        const args = operands(boundaries, "F8_E4M3");
        const scales = (...shape: number[]): Value => ({
          dtype: "F32",
          shape,
          bytes: new Uint8Array(new Float32Array(shape.reduce((a, b) => a * b, 1)).fill(0.25).buffer),
        });
        const options = { out_dtype: { dtype: "BF16" }, use_fast_accum: true } as const;
        const scaledArgs = {
          scale_a: scales(boundaries.at(-1) ?? 0),
          scale_b: scales(boundaries.length, WIDTH),
        };
        const [out] = scaledGroupedProduct(callOf({ ...args, ...scaledArgs, ...options })) as [Value];
        for (const [i, from, to] of groupsOf(boundaries)) {
          const self = matrixOf(args.self, from, to, [to - from, DEPTH]);
          const mat2 = matrixOf(args.mat2, i, i + 1, [DEPTH, WIDTH]);
          const call = callOf({ self, mat2, scale_a: power, scale_b: power, ...options });
          const [expected] = productModel(scaledOptions)(call) as [Value];
          expect(matrixOf(out, from, to, expected.shape)).toEqual({
            ...expected,
            bytes: expected.bytes.slice(),
          });
        }
      }),
    );
  });

  it("has no model of rows beyond the last group, of a bias, of f16 and of split accumulators", () => {
    const args = operands([2, 5], "BF16");
    const offs = { ...args.offs, bytes: new Uint8Array(Int32Array.of(2, 4).buffer) };
    expect(() => groupedProduct(callOf({ ...args, offs }))).toThrow("beyond the last group");
    expect(() => groupedProduct(callOf({ ...args, bias: args.self }))).toThrow("bias is");
    const self = conversion(backend, conversion(backend, args.self, "F32"), "F16");
    expect(() => groupedProduct(callOf({ ...args, self }))).toThrow("groups of F16");
    const scales = { scale_a: floats([5], 3), scale_b: floats([2, WIDTH], 4) };
    expect(() => scaledGroupedProduct(callOf({ ...args, ...scales }))).toThrow("split accumulators");
  });

  it("is refused with offsets that do not fit", () => {
    const args = operands([2, 5], "BF16");
    const offs = { ...args.offs, bytes: new Uint8Array(Int32Array.of(5, 2).buffer) };
    expect(() => groupedProduct(callOf({ ...args, offs }))).toThrow("offsets [5,2] of [5,32] and [2,32,16]");
  });
});
