// Chains of the tensor core are the products of the reference, and can be continued from any step.
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Backend, gemm, openBackend, Scope } from "../../../../src/index.js";
import { type Line, TensorCore, toLines } from "../../../../src/referee/attention/tensor-core.js";
import { roundedValue, toFloat32 } from "../../../../src/referee/conversions.js";
import { toTensor } from "../../../../src/referee/value.js";
import { draws } from "../../harness/draws.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

const FORMATS = [
  {
    dtype: "BF16",
    lowest: -126,
    bits: fc.integer({ min: 0, max: 0xffff }).filter((x) => (x & 0x7f80) !== 0x7f80),
  },
  {
    dtype: "F16",
    lowest: -14,
    bits: fc.integer({ min: 0, max: 0xffff }).filter((x) => (x & 0x7c00) !== 0x7c00),
  },
] as const;

const bitsOf = (x: number): number => new Uint32Array(Float32Array.of(x).buffer)[0] as number;

describe.each(FORMATS)("a chain of $dtype", ({ dtype, lowest, bits }) => {
  const factors = (length: number) =>
    fc.array(fc.oneof(bits, fc.constantFrom(0, 0x8000, 1, 0x3f80, 0xbf81)), {
      minLength: length,
      maxLength: length,
    });
  const pairs = fc.integer({ min: 1, max: 70 }).chain((length) => fc.tuple(factors(length), factors(length)));
  const valueFrom = (codes: readonly number[]) => ({
    dtype,
    shape: [1, codes.length],
    bytes: new Uint8Array(Uint16Array.from(codes).buffer),
  });
  const lineOf = (codes: readonly number[]) => {
    const line = toLines(toFloat32(backend, valueFrom(codes)), codes.length, lowest)[0];
    if (!line) throw new Error("no line");
    return line;
  };

  it("of 16 products in a step is the reference's product", () => {
    fc.assert(
      fc.property(pairs, ([a, b]) => {
        using _ = new Scope();
        const [x, w] = [toTensor(backend, valueFrom(a)), toTensor(backend, valueFrom(b))];
        const { out } = gemm({ x, w, datapath: "hopper", splitK: 1, outDtype: "f32" });
        const [expected = 0] = out.dataSync();
        const sum = new TensorCore(16).chain(0, lineOf(a), lineOf(b));
        // without splits, the product adds +0 to the sum
        expect(bitsOf(sum + 0)).toBe(bitsOf(Number(expected)));
      }),
      { numRuns: draws(300) },
    );
  });

  it.each([8, 16] as const)("of %i products in a step can be continued after each step", (depth) => {
    const core = new TensorCore(depth);
    fc.assert(
      fc.property(pairs, fc.nat(8), ([a, b], steps) => {
        const begin = depth * steps;
        const partOf = ({ values, exponents }: Line, from: number, to?: number): Line => ({
          values: values.subarray(from, to),
          exponents: exponents.subarray(from, to),
        });
        const [x, w] = [lineOf(a), lineOf(b)];
        const start = core.chain(0, partOf(x, 0, begin), partOf(w, 0, begin));
        const result = core.chain(start, partOf(x, begin), partOf(w, begin));
        expect(bitsOf(result)).toBe(bitsOf(core.chain(0, lineOf(a), lineOf(b))));
      }),
      { numRuns: draws(300) },
    );
  });

  it("truncates each product of a step, and the sum of the step before", () => {
    // eight products of 2^-26 are 2^-23 together, but each is truncated to 0 in one step with a product of 1
    const factor = roundedValue(
      backend,
      dtype,
      [16],
      Float32Array.from({ length: 16 }, (_, i) => (i < 8 ? 2 ** -13 : i === 8 ? 1 : 0)),
    );
    const [line] = toLines(toFloat32(backend, factor), 16, lowest);
    if (!line) throw new Error("no line");
    const sums = ([8, 16] as const).map((depth) => new TensorCore(depth).chain(0, line, line));
    expect(sums).toEqual([1 + 2 ** -23, 1]);
  });
});
