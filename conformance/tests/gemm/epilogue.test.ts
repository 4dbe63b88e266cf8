import fc from "fast-check";
import { expect, it } from "vitest";
import { OVERFLOW, WIDE } from "../../../src/formats/contract.gen.js";
import { factsOf } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { type KernelInstance, kernels, NO_LINES, withMemory } from "../../operations/gemm/kernel.js";
import { bitsOf, fromBits, mul } from "../../oracle/core/rational.js";
import { encode } from "../../oracle/core/scalar.js";
import { epilogue } from "../../oracle/gemm/gemm.js";
import { draws } from "../harness/draws.js";

const bits = fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: 0, max: 0xffffffff }) },
  {
    weight: 3,
    arbitrary: fc
      .tuple(fc.integer({ min: 0x3a000000, max: 0x46000000 }), fc.boolean())
      .map(([b, s]) => (s ? b + 2 ** 31 : b)),
  },
  { weight: 1, arbitrary: fc.constantFrom(0, 0x80000000, 1, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff) },
);
const finite = fc.integer({ min: 0x3e000000, max: 0x41000000 }).map(fromBits);

const scenario = fc.record({
  rows: fc.array(fc.tuple(bits, bits), { minLength: 1, maxLength: 9 }),
  bias: fc.option(bits, { nil: undefined }),
  alpha: fc.oneof(
    finite,
    finite.map((x) => -x),
  ),
  scaleA: fc.oneof(
    { weight: 4, arbitrary: finite },
    { weight: 1, arbitrary: fc.constantFrom(0, -0, 2 ** -120) },
  ),
  scaleB: fc.oneof(finite, fc.constant(fromBits(0x00400000))),
  beta: fc.oneof(fc.constant(0), fc.constant(1), finite),
  split: fc.boolean(),
  target: fc.constantFrom("f32", "bf16", "f16", "e4m3", "e5m2"),
  scale: finite,
});
type Scenario = typeof scenario extends fc.Arbitrary<infer S> ? S : never;

const isNarrow = (target: Scenario["target"]): boolean => target === "e4m3" || target === "e5m2";
const bytes = (...words: number[]): Uint8Array => new Uint8Array(Uint32Array.from(words).buffer);

function outputBytes(target: Scenario["target"]): number {
  return target === "f32" ? 4 : factsOf(target).storageBits / 8;
}

/** Runs the epilogue kernel in two calls on a matrix of one column. Returns D's codes and the amax's bits. */
function run(instance: KernelInstance, s: Scenario): readonly [codes: number[], amax: number] {
  const { memory, pool } = instance;
  return withMemory(instance, (place) => {
    const rows = s.rows.length;
    const output = place(bytes(...s.rows.map(([acc]) => acc)));
    const addend = place(bytes(...s.rows.map(([, c]) => c)));
    const bias = s.bias === undefined ? 0 : place(bytes(s.bias));
    const [target, amax] = [place(new Uint8Array(rows * 4)), place(bytes(0))];
    const word = s.target === "f32" ? 0 : factsOf(s.target).word;
    const overflow = isNarrow(s.target) ? OVERFLOW.saturate : OVERFLOW.nonfinite;
    const sums = { output, rows, columns: 1, splits: s.split ? 2 : 1 };
    const scaling = { alpha: s.alpha, scaleA: s.scaleA, scaleB: s.scaleB, beta: s.beta };
    const addends = { addend, addendType: WIDE.f32, bias, biasType: WIDE.f32 };
    const targetScale = isNarrow(s.target) ? s.scale : 1;
    const result = { target, targetWord: word, targetOverflow: overflow, targetScale, amax };
    const task = { ...sums, ...scaling, ...addends, ...result, ...NO_LINES };
    pool.run("gemmEpilogue", { total: rows >> 1 }, task);
    pool.run("gemmEpilogue", { first: rows >> 1, total: rows - (rows >> 1) }, task);
    const view = new DataView(memory.buffer);
    const read = { 1: "getUint8", 2: "getUint16", 4: "getUint32" } as const;
    const size = outputBytes(s.target) as 1 | 2 | 4;
    const codes = s.rows.map((_, i) => view[read[size]](target + i * size, true));
    return [codes, view.getUint32(amax, true)] as const;
  });
}

function expected(s: Scenario): readonly [codes: number[], amax: number] {
  const bias = s.bias === undefined ? undefined : fromBits(s.bias);
  const xs = s.rows.map(([acc, c]) => epilogue(fromBits(acc), { ...s, c: fromBits(c), bias }));
  const codes = xs.map((x) => {
    if (s.target === "f32") return Number.isNaN(x) ? 0x7fffffff : bitsOf(x);
    if (!isNarrow(s.target)) return encode(bitsOf(x), SCALAR_FORMATS[s.target], "tiesToEven", "nonfinite", 0);
    return encode(bitsOf(mul(x, s.scale)), SCALAR_FORMATS[s.target], "tiesToEven", "saturate", 0);
  });
  return [codes, bitsOf(xs.filter((x) => !Number.isNaN(x)).reduce((a, x) => Math.max(a, Math.abs(x)), 0))];
}

it("the epilogue rounds where cuBLASLt does: scales, beta, bias, amax, output", async () => {
  const instance = await kernels();
  fc.assert(
    fc.property(scenario, (s) => {
      expect(run(instance, s)).toEqual(expected(s));
    }),
    { numRuns: draws(3000) },
  );
});

it("the test fails if beta is fused in the other order", async () => {
  const instance = await kernels();
  const base = {
    alpha: 1,
    scaleA: fromBits(0x3f800123),
    scaleB: 1,
    beta: fromBits(0x3f812345),
    target: "f32",
    scale: 1,
  } as const;
  const rows = Array.from(
    { length: 64 },
    (_, i) => [0x3f9abc00 + 7919 * i, 0xbf8fedc0 + 104729 * i] as [number, number],
  );
  const [unsplit] = run(instance, { ...base, bias: undefined, rows, split: false });
  const [split] = run(instance, { ...base, bias: undefined, rows, split: true });
  expect(unsplit).not.toEqual(split);
});
