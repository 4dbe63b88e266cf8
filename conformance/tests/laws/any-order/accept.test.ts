/** Kernels of any order: correct ones are accepted, planted bugs are found. */
import { describe, expect, it } from "vitest";
import { ArgumentError, openBackend } from "../../../../src/index.js";
import { acceptAnyOrder, backendSubject, fromCodes } from "../../../index.js";
import { SEED, sampleCases } from "../../harness/draws.js";
import { IS_FULL } from "../../harness/full.js";
import { CORRECT_KERNELS } from "../../harness/order-kernels/correct.js";
import { kernelSubject, type OrderKernel } from "../../harness/order-kernels/kernel.js";
import { WRONG_KERNELS } from "../../harness/order-kernels/wrong.js";

const RUNS = IS_FULL ? 36 : 18;

const verdictOf = async (kernel: OrderKernel) => {
  const { supported: gemm, accumulator } = kernel;
  const options = { runs: RUNS, seed: SEED, supported: { gemm }, accumulator };
  const { ok, operations } = await acceptAnyOrder(kernelSubject(kernel), options);
  return { ok, report: operations[0] as (typeof operations)[number] };
};

describe("a right kernel is accepted", () => {
  it.each(sampleCases(CORRECT_KERNELS, 2))(
    "$name",
    async (kernel) => {
      const { ok, report } = await verdictOf(kernel);
      expect(ok, report.lines.join("\n")).toBe(true);
      expect(report.runs).toBe(RUNS);
    },
    400_000,
  );
});

describe("a planted bug is found", () => {
  it.each(sampleCases(WRONG_KERNELS, 2))(
    "$name",
    async (kernel) => {
      const { ok, report } = await verdictOf(kernel);
      expect(ok, report.lines.join("\n")).toBe(false);
      const { verdict } = report;
      expect(verdict?.wrong).toBeGreaterThan(0);
      expect(verdict?.findings.length).toBeGreaterThan(0);
    },
    400_000,
  );
});

const kernelNamed = (name: string): OrderKernel =>
  [...CORRECT_KERNELS, ...WRONG_KERNELS].find((kernel) => kernel.name === name) as OrderKernel;

describe("a verdict says", () => {
  it("the order, and how much wider tolerances are", async () => {
    const { report } = await verdictOf(kernelNamed("blocks of 16 with promotion"));
    expect(report.verdict).toMatchObject({ by: "order", wrong: 0 });
    expect(report.lines[0]).toContain("blocks of 16 along K start at zero and are added to the total in f32");
    expect(report.lines.join("\n")).toMatch(/rtol 1e-2, atol 1e-2 is [\d,.]+ times as wide/);
  }, 120_000);

  it("that elements were held to intervals only", async () => {
    const { report } = await verdictOf(kernelNamed("atomic split-K, another order for each element"));
    expect(report.verdict?.by).toBe("interval");
    expect(report.lines.join("\n")).toContain("are held to the interval that contains every order");
  }, 120_000);

  it("which accumulator an order would have to declare", async () => {
    const { report } = await verdictOf(kernelNamed("promotion every 128 is declared and missing"));
    expect(report.lines.join("\n")).toMatch(/hopper-fp8/);
  }, 120_000);
});

describe("column sums", () => {
  const sums = (alter: (sum: number) => number) => ({
    columnSum({ x, outDtype }: { readonly x: ReturnType<typeof fromCodes>; readonly outDtype: string }) {
      const [rows, columns] = x.matrix;
      const values = x.data as Float32Array;
      const out = Float32Array.from({ length: columns }, (_, j) => {
        let sum = 0;
        for (let i = 0; i < rows; i++) sum = Math.fround(sum + (values[i * columns + j] as number));
        return alter(sum);
      });
      expect(outDtype).toBe("f32");
      return { out: fromCodes("f32", [columns], new Uint32Array(out.buffer)) };
    },
  });
  const options = {
    runs: 24,
    seed: SEED,
    supported: { columnSum: { "x.dtype": ["f32"], outDtype: ["f32"] } },
  };

  it("are accepted in ascending order, and not with an addend", async () => {
    const acceptedRun = await acceptAnyOrder(sums((sum) => sum) as never, options);
    expect(acceptedRun.operations[0]?.lines.join("\n")).toContain("order: ascending k");
    expect(acceptedRun.ok).toBe(true);
    const rejectedRun = await acceptAnyOrder(sums((sum) => Math.fround(sum + 1)) as never, options);
    expect(rejectedRun.ok).toBe(false);
  }, 120_000);

  it("of the reference are accepted", async () => {
    const backend = await openBackend("wasm");
    const { columnSum } = backendSubject(backend);
    expect((await acceptAnyOrder({ columnSum }, { runs: 24, seed: SEED })).ok).toBe(true);
    await backend.dispose();
  }, 120_000);
});

describe("refuses", () => {
  it.each([
    [{ accumulator: "fp32" }, /accumulator "fp32" is not one of f32, tensor-core, f64, hopper-fp8/],
    [{ operations: ["quantize"] }, /order any is for gemm and columnSum/],
    [{ runs: 0 }, /runs/],
    [
      { supported: { gemm: { outDtype: ["e4m3"] } } },
      /supports outDtype \["e4m3"\]; any order is for products/,
    ],
  ])(
    "%j",
    async (options, message) => {
      const subject = kernelSubject(kernelNamed("2 lanes"));
      await expect(acceptAnyOrder(subject, options as never)).rejects.toThrow(message);
      await expect(acceptAnyOrder(subject, options as never)).rejects.toThrow(ArgumentError);
    },
    400_000,
  );

  it("a subject without products and sums", async () => {
    await expect(acceptAnyOrder({ quantize: () => ({}) })).rejects.toThrow(ArgumentError);
  });

  it("an answer without the result, and one of another size", async () => {
    const noResult = await acceptAnyOrder({ gemm: () => ({}) }, { runs: 2 });
    expect(noResult.operations[0]?.error).toContain("it has to have out");
    const element = fromCodes("f32", [1], [0]);
    const shortResult = await acceptAnyOrder({ columnSum: () => ({ out: element }) }, { runs: 8 });
    expect(shortResult.operations[0]?.error).toMatch(/out has 1 elements; it has to have \d+/);
  }, 120_000);
});
