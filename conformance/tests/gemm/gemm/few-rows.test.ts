/**
 * Products of few rows, for which the reference has a separate kernel, are bitwise equal to the scalar step, and each row is
 * independent of the others.
 */
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { tensor } from "../../../../src/ops/create.js";
import { gemm } from "../../../../src/ops/gemm/gemm.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { operands, scalesOf } from "../../../operations/gemm/arbitrary-codes.js";
import {
  type Codes,
  type KernelInstance,
  type KernelTask,
  kernels,
  runKernel,
} from "../../../operations/gemm/kernel.js";
import { share } from "../../arbitraries/share.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

let instance: KernelInstance;
beforeAll(async () => {
  instance = await kernels();
});

const backend = useBackend();

/** Whether the few-rows kernel and the scalar step give the same bits. */
function same(task: Omit<KernelTask, "kernel" | "datapath">): void {
  const hopper = { ...task, datapath: "hopper-half" } as const;
  const scalar = runKernel(instance, { ...hopper, kernel: "scalar" });
  expect(runKernel(instance, { ...hopper, kernel: "wide" })).toEqual(scalar);
}

/**
 * The draw of a line of bf16: exponents from `exponent` to `exponent` + `spread`, some elements zero, some with another exponent.
 */
interface Line {
  readonly seed: number;
  readonly exponent: number;
  readonly spread: number;
  readonly zeros: "none" | "some" | "most" | "first" | "all";
  readonly other: number | undefined;
  readonly fractions: "any" | "largest" | "one";
}

function lineOf(line: Line, depth: number): number[] {
  let state = line.seed | 1;
  const next = (below: number): number => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 3) % below;
  };
  const zeros = next(depth + 1);
  return Array.from({ length: depth }, (_, k) => {
    const sign = next(2) << 15;
    const isZero = { none: false, some: next(3) === 0, most: next(20) > 0, first: k < zeros, all: true };
    if (isZero[line.zeros]) return sign;
    const isOther = line.other !== undefined && next(30) === 0;
    const exponent = isOther ? (line.other as number) : line.exponent + next(line.spread + 1);
    const fraction = { any: next(128), largest: 127, one: 0 }[line.fractions];
    return sign | (Math.max(0, Math.min(255, exponent + 127)) << 7) | fraction;
  });
}

/** Exponents at which the few-rows kernel may leave a product to another kernel, and their neighbours. */
const EDGES = [
  -126, -127, -100, -60, -51, -50, -40, -35, -25, -20, -10, 0, 10, 25, 26, 39, 40, 60, 61, 127, 128,
];
const exponent = fc
  .tuple(fc.constantFrom(...EDGES), fc.integer({ min: -2, max: 2 }))
  .map(([edge, by]) => edge + by);
const usual = fc.integer({ min: -8, max: 4 });

function line(exponents: fc.Arbitrary<number>): fc.Arbitrary<Line> {
  return fc.record({
    seed: fc.nat(),
    exponent: exponents,
    spread: fc.constantFrom(0, 1, 5, 14, 30),
    zeros: fc.constantFrom("none", "none", "some", "most", "first", "all"),
    other: fc.option(exponent, { nil: undefined, freq: 2 }),
    fractions: fc.constantFrom("any", "any", "largest", "one"),
  });
}

const lines = (most: number): fc.Arbitrary<readonly Line[]> =>
  fc.oneof(usual, exponent).chain((center) => {
    const near = fc.oneof({ weight: 4, arbitrary: fc.constant(center) }, { weight: 1, arbitrary: exponent });
    return fc.array(line(near), { minLength: 1, maxLength: most });
  });

const depths = fc.oneof(
  fc.integer({ min: 1, max: 20 }).map((steps) => steps * 16),
  fc.integer({ min: 0, max: 100 }),
);

const bf16 = (drawn: readonly Line[], depth: number): Codes => ({
  format: "bf16",
  lines: drawn.map((each) => lineOf(each, depth)),
});

describe("few rows of bf16 have the bits of the scalar step", () => {
  it("where exponents reach the limits of the form, with zeros, infinities and NaN", () => {
    fc.assert(
      fc.property(lines(9), lines(70), depths, (x, w, depth) => {
        same({ x: bf16(x, depth), w: bf16(w, depth), depth });
      }),
      { numRuns: draws(1500) },
    );
  });

  it("at each limit of the form", () => {
    const at = (...limits: readonly number[]) =>
      fc.tuple(fc.constantFrom(...limits), fc.integer({ min: -2, max: 2 })).map(([limit, by]) => limit + by);
    const one = (exponents: fc.Arbitrary<number>) =>
      fc.record({
        seed: fc.nat(),
        exponent: exponents,
        spread: fc.constantFrom(0, 1, 3),
        zeros: fc.constantFrom("none", "some", "first"),
        other: fc.option(at(-126, -100, -60, -40, -20, 0, 40), { nil: undefined }),
        fractions: fc.constant("any" as const),
      });
    const product = fc.record({
      x: one(at(-90, -50, -50, -20, 0, 60)),
      w: one(at(-95, -85, -75, -60, -40, 0, 25, 40)),
      columns: fc.integer({ min: 8, max: 12 }),
      depth: fc.integer({ min: 1, max: 3 }).map((steps) => steps * 16),
    });
    fc.assert(
      fc.property(product, ({ x, w, columns, depth }) => {
        const weights = Array.from({ length: columns }, (_, n) => ({ ...w, seed: w.seed + n * 7919 }));
        same({ x: bf16([x], depth), w: bf16(weights, depth), depth });
      }),
      { numRuns: draws(6000) },
    );
  });

  it("where every product of a step is close to the largest sum of 32 bits", () => {
    const product = fc.record({
      ofX: fc.integer({ min: 0, max: 127 }),
      ofW: fc.integer({ min: 0, max: 127 }),
      columns: fc.integer({ min: 8, max: 20 }),
      depth: fc.integer({ min: 1, max: 6 }).map((steps) => steps * 16),
      negative: fc.boolean(),
      last: fc.integer({ min: 0, max: 127 }),
    });
    fc.assert(
      fc.property(product, ({ ofX, ofW, columns, depth, negative, last }) => {
        const filled = (code: number, end: number): number[] =>
          Array.from({ length: depth }, (_, k) => (k % 16 === 15 ? end : code));
        const x: Codes = { format: "bf16", lines: [filled(0x3f80 | ofX, 0x3f80 | last)] };
        const sign = negative ? 0x8000 : 0;
        const code = 0x3f80 | sign;
        const w: Codes = {
          format: "bf16",
          lines: Array.from({ length: columns }, (_, n) => filled(code | Math.max(0, ofW - n), code | 127)),
        };
        same({ x, w, depth });
        // after a first step of one product, the accumulator has the exponent of the largest products
        const largest = [0x3f80 | (last >> 4), ...Array(15).fill(0), ...filled(0x3fff, 0x3fff)];
        const weights = w.lines.map(() => Array(depth + 16).fill(0x3fff | sign));
        same({ x: { ...x, lines: [largest] }, w: { ...w, lines: weights }, depth: depth + 16 });
      }),
      { numRuns: draws(200) },
    );
  });

  it("of any codes, in any parts", () => {
    fc.assert(
      fc.property(
        operands(["bf16"], { lines: 45, depth: 400 }),
        fc.array(share, { maxLength: 4 }),
        fc.integer({ min: 1, max: 16 }),
        ([x, w, depth], cuts, rows) => {
          same({ x: { ...x, lines: x.lines.slice(0, rows) }, w, depth, cuts });
        },
      ),
      { numRuns: draws(200) },
    );
  });
});

describe("few rows of block-scaled operands that are rounded to bf16 have the bits of the scalar step", () => {
  const kinds = [
    [["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"], "e8m0", 32],
    [["e2m1"], "ue4m3", 16],
  ] as const;
  for (const [formats, scale, block] of kinds) {
    it(`${formats.join(", ")} with ${scale} scales`, () => {
      const task = operands(formats, { lines: 40, depth: 300 }).chain(([drawn, w, depth]) => {
        const x = { ...drawn, lines: drawn.lines.slice(0, 5) };
        return fc
          .tuple(scalesOf(x, depth, scale, block), scalesOf(w, depth, scale, block))
          .map(([ofX, ofW]) => ({ x: { ...x, scales: ofX }, w: { ...w, scales: ofW }, depth }));
      });
      fc.assert(
        fc.property(task, (t) => {
          same({ ...t, staging: "bf16" });
        }),
        { numRuns: draws(300) },
      );
    });
  }
});

describe("rows at once have the bits of each row by itself", () => {
  const ROWS = 20;
  const DATAPATHS = ["hopper", "ada", "blackwell", "exact", "fp32"] as const;
  for (const format of ["bf16", "f16", "e4m3", "e5m2"] as const) {
    it(format, () => {
      const draw = fc.tuple(operands([format], { lines: 40, depth: 200 }), fc.constantFrom("f32", "bf16"));
      fc.assert(
        fc.property(draw, ([[x, w, depth], outDtype]) => {
          using _scope = new Scope();
          const upload = (codes: readonly (readonly number[])[]) => {
            const flat = codes.flat();
            const data = format.endsWith("16") ? Uint16Array.from(flat) : Uint8Array.from(flat);
            return tensor(backend(), data, [codes.length, depth], format);
          };
          const all = Array.from(
            { length: ROWS },
            (_, i) => x.lines[i % x.lines.length] as readonly number[],
          );
          const weight = upload(w.lines);
          for (const datapath of DATAPATHS) {
            const bits = (codes: readonly (readonly number[])[]) => {
              const { out } = gemm({ x: upload(codes), w: weight, datapath, outDtype });
              const data = out.dataSync();
              return [...new Uint8Array(data.buffer, data.byteOffset, data.byteLength)];
            };
            const together = bits(all);
            const length = together.length / ROWS;
            for (const i of x.lines.slice(0, 4).keys()) {
              expect(bits([all[i] as readonly number[]])).toEqual(
                together.slice(i * length, (i + 1) * length),
              );
            }
            expect(bits(all.slice(0, 7))).toEqual(together.slice(0, 7 * length));
          }
        }),
        { numRuns: draws(40) },
      );
    });
  }
});
