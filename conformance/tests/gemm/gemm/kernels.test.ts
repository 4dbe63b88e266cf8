import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { codesOf, operands, scalesOf } from "../../../operations/gemm/arbitrary-codes.js";
import {
  type Codes,
  type KernelInstance,
  type KernelTask,
  kernels,
  runKernel,
  runOracle,
} from "../../../operations/gemm/kernel.js";
import { share } from "../../arbitraries/share.js";
import { draws, sampleCases } from "../../harness/draws.js";

let instance: KernelInstance;
beforeAll(async () => {
  instance = await kernels();
});

const hex = (bits: Uint32Array): string[] => Array.from(bits, (b) => b.toString(16));

function agrees(task: KernelTask): void {
  expect(hex(runKernel(instance, task))).toEqual(hex(runOracle(task)));
}

const RUNS = { numRuns: draws(120) };

describe("the scalar step is datapath.md §1 for every row", () => {
  const rows = [
    ["hopper-fp8", ["e4m3", "e5m2"]],
    ["hopper-half", ["bf16"]],
    ["hopper-half", ["f16"]],
    ["ada-fp8", ["e4m3", "e5m2"]],
    ["ada-half", ["bf16"]],
    ["ada-half", ["f16"]],
    ["blackwell-narrow", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"]],
    ["blackwell-half", ["bf16"]],
    ["blackwell-half", ["f16"]],
  ] as const;
  for (const [datapath, formats] of rows) {
    it(`${datapath} on ${formats.join(", ")}`, () => {
      fc.assert(
        fc.property(operands(formats, { lines: 3, depth: 100 }), ([x, w, depth]) => {
          agrees({ x, w, depth, datapath, kernel: "scalar" });
        }),
        RUNS,
      );
    });
  }

  it("hopper-tf32 rounds f32 operands to ten fraction bits first", () => {
    fc.assert(
      fc.property(operands(["f32"], { lines: 3, depth: 40 }), ([x, w, depth]) => {
        agrees({ x, w, depth, datapath: "hopper-tf32", kernel: "scalar", staging: "tf32" });
      }),
      RUNS,
    );
  });
});

describe("block scales", () => {
  const scaled = (formats: readonly Codes["format"][], scale: "e8m0" | "ue4m3", block: number) =>
    operands(formats, { lines: 3, depth: 150 }).chain(([x, w, depth]) =>
      fc
        .tuple(scalesOf(x, depth, scale, block), scalesOf(w, depth, scale, block))
        .map(([sx, sw]) => ({ x: { ...x, scales: sx }, w: { ...w, scales: sw }, depth })),
    );

  it("MX scales are part of the product exponents on blackwell", () => {
    fc.assert(
      fc.property(scaled(["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"], "e8m0", 32), (t) => {
        agrees({ ...t, datapath: "blackwell-narrow", kernel: "scalar", staging: "scaled" });
        agrees({ ...t, datapath: "blackwell-narrow", kernel: "wide", staging: "scaled" });
      }),
      RUNS,
    );
  });

  for (const [scale, block] of [
    ["ue4m3", 16],
    ["e8m0", 32],
  ] as const) {
    it(`FP4 under ${scale} per ${block} is summed exactly in groups of 16 on blackwell`, () => {
      fc.assert(
        fc.property(scaled(["e2m1"], scale, block), (t) => {
          agrees({ ...t, datapath: "blackwell-fp4", kernel: "scalar", staging: "grouped" });
        }),
        RUNS,
      );
    });
    it(`formats under ${scale} become bf16 on hopper, exact and fp32 see the scaled values`, () => {
      fc.assert(
        fc.property(scaled(scale === "e8m0" ? ["e4m3", "e5m2", "e3m2"] : ["e2m1"], scale, block), (t) => {
          agrees({ ...t, datapath: "hopper-half", kernel: "wide", staging: "bf16" });
          agrees({ ...t, datapath: "exact", kernel: "exact" });
          agrees({ ...t, datapath: "fp32", kernel: "plain" });
        }),
        RUNS,
      );
    });
  }

  for (const [promotion, shift] of [
    ["scaleProduct", 7],
    ["scaleChain", 0],
  ] as const) {
    it(`scales per block of 128 join by ${promotion}`, () => {
      const task = operands(["e4m3", "e5m2"], { lines: 3, depth: 400 }).chain(([x, w, depth]) =>
        fc
          .tuple(scalesOf(x, depth, "f32", 128), scalesOf(w, depth, "f32", 128, shift))
          .map(([sx, sw]) => ({ x: { ...x, scales: sx }, w: { ...w, scales: sw }, depth })),
      );
      fc.assert(
        fc.property(task, (t) => {
          for (const kernel of ["scalar", "narrow"] as const) {
            agrees({ ...t, datapath: "hopper-fp8", kernel, promotion });
          }
          agrees({ ...t, datapath: "exact", kernel: "exact" });
          agrees({ ...t, datapath: "fp32", kernel: "plain" });
        }),
        { numRuns: draws(60) },
      );
    });
  }
});

describe("the SIMD kernels are the scalar step, bit for bit", () => {
  const pairs = [
    ["narrow", "hopper-fp8", ["e4m3", "e5m2"]],
    ["narrow", "ada-fp8", ["e4m3", "e5m2"]],
    ["wide", "hopper-half", ["bf16"]],
    ["wide", "hopper-half", ["f16"]],
    ["wide", "ada-half", ["bf16"]],
    ["wide", "blackwell-half", ["bf16"]],
    ["wide", "blackwell-narrow", ["e4m3", "e5m2", "e3m2"]],
  ] as const;
  for (const [kernel, datapath, formats] of pairs) {
    it(`${kernel}: ${datapath} on ${formats.join(", ")}, ragged shapes`, () => {
      fc.assert(
        fc.property(operands(formats, { lines: 37, depth: 700 }), ([x, w, depth]) => {
          const task = { x, w, depth, datapath };
          expect(runKernel(instance, { ...task, kernel })).toEqual(
            runKernel(instance, { ...task, kernel: "scalar" }),
          );
        }),
        RUNS,
      );
    });
  }
});

describe("the SIMD kernels at the limits of their short cuts", () => {
  const same = (task: Omit<KernelTask, "kernel">, kernel: "narrow" | "wide"): void =>
    expect(runKernel(instance, { ...task, kernel })).toEqual(
      runKernel(instance, { ...task, kernel: "scalar" }),
    );
  /**
   * Lines of bf16 whose exponents are `exponent` to `exponent` + 2, or 11 lower. Some elements cancel their
   * predecessor.
   */
  const banded = (lines: number, depth: number, exponent: number, seed: number): Codes => ({
    format: "bf16",
    lines: codesOf("bf16", lines, depth, seed).lines.map((line) =>
      line.map((code, k) => {
        const previous = line[k % 3 === 2 ? k - 1 : k] as number;
        const sign = (k % 3 === 2 ? previous ^ 0x8000 : code) & 0x8000;
        const place = (previous % 3) - (previous % 5 === 0 ? 11 : 0);
        return sign | ((exponent + 127 + place) << 7) | (previous & 0x7f);
      }),
    ),
  });
  const edges = [-152, -149, -133, -128, -126, -125, -124, -122, 114, 117, 119, 120, 121, 124, 126];
  for (const datapath of ["hopper-half", "ada-half"] as const) {
    it(`wide: ${datapath} where sums underflow, and where they overflow`, () => {
      const band = fc.record({
        edge: fc.constantFrom(...edges),
        own: fc.integer({ min: -2, max: 2 }),
        seeds: fc.tuple(fc.nat(), fc.nat()),
        lines: fc.tuple(fc.integer({ min: 1, max: 21 }), fc.integer({ min: 1, max: 11 })),
        depth: fc.integer({ min: 1, max: 200 }),
      });
      fc.assert(
        fc.property(band, ({ edge, own, seeds, lines, depth }) => {
          const half = Math.floor(edge / 2) + own;
          const x = banded(lines[0], depth, half, seeds[0]);
          same({ x, w: banded(lines[1], depth, edge - 2 - half, seeds[1]), depth, datapath }, "wide");
        }),
        { numRuns: draws(300) },
      );
    });
  }

  it("narrow: infinities and NaN, a whole line of them or one, beside finite lines", () => {
    const special = fc.constantFrom(0x7c, 0xfc, 0x7e);
    fc.assert(
      fc.property(
        special,
        fc.nat(),
        fc.nat({ max: 69 }),
        fc.boolean(),
        fc.constantFrom("wild", "narrow"),
        (code, seed, at, whole, flavour) => {
          const depth = 70;
          const finite = codesOf("e5m2", 6, depth, seed, "sparse");
          const lines = finite.lines.map((line, i) =>
            i === 2 ? line.map((c, k) => (whole || k === at ? code : c)) : line,
          );
          const any = codesOf("e5m2", 19, depth, seed + 1, flavour);
          // all infinities have one sign; otherwise every sum that has one is NaN
          const w: Codes = whole
            ? { ...any, lines: any.lines.map((line) => line.map((c) => c & 0x7f)) }
            : any;
          same({ x: { format: "e5m2", lines }, w, depth, datapath: "hopper-fp8" }, "narrow");
          same({ x: w, w: { format: "e5m2", lines }, depth, datapath: "hopper-fp8" }, "narrow");
        },
      ),
      { numRuns: draws(100) },
    );
  });
});

describe("chains, splits and partitions", () => {
  it("a split accumulator adds chains of 128 in f32", () => {
    fc.assert(
      fc.property(operands(["e4m3", "e5m2"], { lines: 3, depth: 500 }), ([x, w, depth]) => {
        for (const kernel of ["scalar", "narrow"] as const) {
          agrees({ x, w, depth, datapath: "hopper-fp8", kernel, promotion: "add" });
        }
      }),
      { numRuns: draws(60) },
    );
  });

  it("split-K gives each split ceil(tiles / s) tiles and adds the partial sums in order", () => {
    fc.assert(
      fc.property(
        operands(["e4m3"], { lines: 3, depth: 900 }),
        operands(["bf16"], { lines: 3, depth: 500 }),
        fc.integer({ min: 2, max: 5 }),
        fc.constantFrom("none", "add"),
        ([x, w, depth], [a, b, k], splits, promotion) => {
          agrees({ x, w, depth, datapath: "hopper-fp8", kernel: "narrow", splits, promotion });
          agrees({ x: a, w: b, depth: k, datapath: "hopper-half", kernel: "wide", splits });
        },
      ),
      { numRuns: draws(40) },
    );
  });

  it("no result depends on how units are divided among threads", () => {
    const kernelOf = { narrow: "hopper-fp8", plain: "fp32", exact: "exact" } as const;
    fc.assert(
      fc.property(
        operands(["e4m3"], { lines: 150, depth: 64 }),
        fc.array(share, { minLength: 1, maxLength: 4 }),
        fc.constantFrom("narrow", "plain", "exact"),
        ([x, w, depth], cuts, kernel) => {
          const task = { x, w, depth, datapath: kernelOf[kernel], kernel };
          expect(runKernel(instance, { ...task, cuts })).toEqual(runKernel(instance, task));
        },
      ),
      { numRuns: draws(40) },
    );
  });
});

describe("the datapaths that are definitions", () => {
  for (const formats of [["f32"], ["bf16"], ["f16"], ["e5m2"], ["e4m3", "bf16", "f32"]] as const) {
    it(`exact and fp32 on ${formats.join(", ")}`, () => {
      fc.assert(
        fc.property(operands(formats, { lines: 4, depth: 90 }), ([x, w, depth]) => {
          agrees({ x, w, depth, datapath: "exact", kernel: "exact" });
          agrees({ x, w, depth, datapath: "fp32", kernel: "plain" });
        }),
        { numRuns: draws(200) },
      );
    });
  }

  it("every product of two 8-bit codes is the exact product", () => {
    for (const [i, format] of sampleCases(["e4m3", "e5m2"] as const, 1).entries()) {
      const x = { format, lines: Array.from({ length: 256 }, (_, code) => [code]) };
      const oracle = runOracle({ x, w: x, depth: 1, datapath: "exact", kernel: "exact" });
      for (const [datapath, kernel] of sampleCases<
        readonly ["hopper-fp8" | "blackwell-narrow" | "exact", "narrow" | "wide" | "exact"]
      >(
        [
          ["hopper-fp8", "narrow"],
          ["blackwell-narrow", "wide"],
          ["exact", "exact"],
        ],
        1,
        i,
      )) {
        expect(runKernel(instance, { x, w: x, depth: 1, datapath, kernel })).toEqual(oracle);
      }
    }
  });
});

describe("a wrong datapath is caught", () => {
  const wrong = [
    ["an alignment one bit short", { alignBits: 12 }],
    ["an alignment one bit long", { alignBits: 14 }],
    ["a result of 12 fraction bits", { fractionBits: 12 }],
    ["steps of 16", { step: 16 }],
  ] as const;
  for (const [what, broken] of wrong) {
    it(what, () => {
      const x = codesOf("e4m3", 8, 256, 1);
      const w = codesOf("e4m3", 8, 256, 2);
      const task: KernelTask = { x, w, depth: 256, datapath: "hopper-fp8", kernel: "scalar" };
      expect(hex(runKernel(instance, task))).toEqual(hex(runOracle(task)));
      expect(hex(runKernel(instance, { ...task, broken }))).not.toEqual(hex(runOracle(task)));
    });
  }
});
