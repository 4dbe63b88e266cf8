/**
 * A result that is defined as rounded once is rounded once, even if the exact value is a tie of f32 or so near to one that an f64
 * sum would round to the other side.
 */
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { WIDE } from "../../../../src/formats/contract.gen.js";
import {
  type Codes,
  type KernelInstance,
  kernels,
  NO_LINES,
  runKernel,
  runOracle,
  withMemory,
} from "../../../operations/gemm/kernel.js";
import { bitsOf, fma, fromBits } from "../../../oracle/core/rational.js";
import { narrowTiedTriple, type Triple, tiedPair, tiedTerms, tiedTriple } from "../../arbitraries/ties.js";
import { drawsOr } from "../../harness/draws.js";

const RUNS = drawsOr(500);
const OPTIONS = { numRuns: RUNS };

let instance: KernelInstance;
beforeAll(async () => {
  instance = await kernels();
});

const hex = (x: number): string => bitsOf(x).toString(16);
const words = (...bits: number[]): Uint8Array => new Uint8Array(Uint32Array.from(bits).buffer);

/** The epilogue of one sum, whose scale is `scale`, with beta * C. */
function epilogue(acc: number, scale: number, c: number, beta: number, splits: 1 | 2): number {
  const { memory, pool } = instance;
  return withMemory(instance, (place) => {
    const sums = { output: place(words(bitsOf(acc))), rows: 1, columns: 1, splits };
    const scaling = { alpha: scale, scaleA: 1, scaleB: 1, beta };
    const addends = { addend: place(words(bitsOf(c))), addendType: WIDE.f32, bias: 0, biasType: WIDE.f32 };
    const target = place(words(0));
    const result = { target, targetWord: 0, targetOverflow: 0, targetScale: 1, amax: 0 };
    pool.run("gemmEpilogue", { total: 1 }, { ...sums, ...scaling, ...addends, ...result, ...NO_LINES });
    return new DataView(memory.buffer).getFloat32(target, true);
  });
}

describe("the fused multiply-add of the epilogue", () => {
  it("rounds scale * acc + C once, in the order of a product without split-K", () => {
    fc.assert(
      fc.property(tiedTriple, ({ a, b, c }) => {
        expect(hex(epilogue(b, a, c, 1, 1))).toBe(hex(fma(a, b, c)));
      }),
      OPTIONS,
    );
  });

  it("rounds beta * C + acc once, in the order of split-K", () => {
    fc.assert(
      fc.property(tiedTriple, ({ a, b, c }) => {
        expect(hex(epilogue(c, 1, b, a, 2))).toBe(hex(fma(a, b, c)));
      }),
      OPTIONS,
    );
  });
});

const ONE = 0x38;
const INTERVAL = 128;

/** A line of e4m3 codes of two chains, each with one element. */
function twoChains(first: number, second: number, scales: readonly [number, number]): Codes {
  const line = new Array<number>(2 * INTERVAL).fill(0);
  line[0] = first;
  line[INTERVAL] = second;
  const codes = [scales.map(bitsOf)];
  return { format: "e4m3", lines: [line], scales: { format: "f32", block: INTERVAL, rowShift: 0, codes } };
}

const negated = (code: number, isNegative: boolean): number => (isNegative ? code | 0x80 : code);

/** The e4m3 code of an integer from 1 to 15. */
function integerCode(n: number): number {
  const exponent = Math.floor(Math.log2(n));
  return ((7 + exponent) << 3) | ((n / 2 ** exponent - 1) * 8);
}

/** The second of two chains is added to the first, c: (chain * sX) * sW for scaleChain, chain * (sX * sW) for scaleProduct. */
function promoted(
  promotion: "scaleChain" | "scaleProduct",
  { a, b, c }: Triple,
  kernel: "scalar" | "narrow",
) {
  const chain = promotion === "scaleChain" ? ONE : integerCode(Math.abs(a));
  const second = negated(chain, a < 0 !== b < 0);
  const sX = promotion === "scaleChain" ? Math.abs(a) : 1;
  const x = twoChains(negated(ONE, c < 0), second, [Math.abs(c), sX]);
  const w = twoChains(ONE, ONE, [1, Math.abs(b)]);
  const task = { x, w, depth: 2 * INTERVAL, datapath: "hopper-fp8", kernel, promotion } as const;
  return (runKernel(instance, task)[0] as number).toString(16);
}

describe("a chain with scales that is added to the total", () => {
  const expected = ({ a, b, c }: Triple): string => hex(fma(a, b, c) + 0);

  it.each(["scalar", "narrow"] as const)("is rounded once: scaleChain, %s", (kernel) => {
    fc.assert(
      fc.property(tiedTriple, (triple) => {
        expect(promoted("scaleChain", triple, kernel)).toBe(expected(triple));
      }),
      OPTIONS,
    );
  });

  it("is rounded once: scaleProduct", () => {
    fc.assert(
      fc.property(narrowTiedTriple, (triple) => {
        expect(promoted("scaleProduct", triple, "narrow")).toBe(expected(triple));
      }),
      OPTIONS,
    );
  });
});

describe("the exact datapath", () => {
  it("rounds the sum of all products once", () => {
    const factor = fc.constantFrom(1, -1, 2 ** -9, 2 ** 7);
    fc.assert(
      fc.property(tiedTerms, factor, (terms, by) => {
        const line = (values: readonly number[]): Codes => ({ format: "f32", lines: [values.map(bitsOf)] });
        const task = {
          ...{ x: line(terms), w: line(terms.map(() => by)), depth: terms.length },
          ...({ datapath: "exact", kernel: "exact" } as const),
        };
        expect(runKernel(instance, task)[0]?.toString(16)).toBe(runOracle(task)[0]?.toString(16));
      }),
      { ...OPTIONS, numRuns: 4 * RUNS },
    );
  });

  it("rounds a product once whose bits are more than f64 has", () => {
    fc.assert(
      fc.property(tiedPair, ({ elements, scales }) => {
        const [x, w] = elements.map((element, i): Codes => {
          const codes = [[bitsOf(scales[i] as number)]];
          const line = [integerCode(element)];
          return { format: "e4m3", lines: [line], scales: { format: "f32", block: 1, rowShift: 0, codes } };
        }) as [Codes, Codes];
        const task = { x, w, depth: 1, datapath: "exact", kernel: "exact" } as const;
        expect(runKernel(instance, task)).toEqual(runOracle(task));
      }),
      OPTIONS,
    );
  });
});

describe("the draws", () => {
  /** How many of the triples an f64 sum, rounded to f32, gets wrong. */
  const twiceRounded = (triples: readonly Triple[]): number =>
    triples.filter(({ a, b, c }) => !Object.is(Math.fround(a * b + c), fma(a, b, c))).length;

  it.each([
    ["any factors", tiedTriple],
    ["a factor of 4 bits", narrowTiedTriple],
  ] as const)("meet a tie that f64 does not see: %s", (_, triples) => {
    const drawn = fc.sample(triples, { numRuns: 400 });
    expect(twiceRounded(drawn)).toBeGreaterThan(20);
  });

  it("have results of every kind: subnormal, of either sign, to either side", () => {
    const drawn = fc.sample(tiedTriple, { numRuns: 600 });
    const results = drawn.map(({ a, b, c }) => fma(a, b, c));
    expect(results.filter((x) => x !== 0 && Math.abs(x) < fromBits(0x00800000)).length).toBeGreaterThan(10);
    expect(results.filter((x) => x < 0).length).toBeGreaterThan(100);
    const up = drawn.filter(({ a, b, c }, i) => Math.abs(results[i] as number) > Math.abs(a * b + c)).length;
    expect(up).toBeGreaterThan(60);
    expect(up).toBeLessThan(540);
  });
});
