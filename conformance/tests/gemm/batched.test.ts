/** Batched products on the reference, and the GELU that only cuBLASLt fuses. */
import { describe, expect, it } from "vitest";
import { ArgumentError, DTypeError, ShapeError, UnsupportedError } from "../../../src/errors.js";
import { tensor, zeros } from "../../../src/ops/create.js";
import { type BatchedGemmOptions, batchedGemm } from "../../../src/ops/gemm/batched.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { Scope } from "../../../src/tensor/scope.js";
import { lawNamed } from "../../laws/laws.js";
import { backendSubject, type Subject } from "../../operations/operations.js";
import { download, upload } from "../../values/plain.js";
import { derivedSeed } from "../harness/draws.js";
import { gridWideValues } from "../harness/gemm/products.js";
import { describeLaws, testEqualBits, testInScope, useBackend, useThreads } from "../harness/suite.js";

const backend = useBackend();
const threads = useThreads();

describeLaws(backend, ["batchedGemm"], { runs: 150, seed: derivedSeed(5) });

describe("batchedGemm", () => {
  testEqualBits("gives the same bits on any number of threads", threads, (each) => {
    const a = upload(each, gridWideValues("bf16", [7, 96, 64], 1));
    const b = upload(each, gridWideValues("bf16", [7, 80, 64], 2));
    return { out: download(batchedGemm({ a, b }).out) };
  });

  testInScope("computes by a plan, which is the one that it reports", () => {
    const a = upload(backend(), gridWideValues("bf16", [2, 16, 256], 1));
    const b = upload(backend(), gridWideValues("bf16", [2, 16, 256], 2));
    const plain = batchedGemm({ a, b, outDtype: "f32" });
    expect(plain.plan).toEqual({ datapath: "hopper-half", splitAccumulator: false, splitK: 1 });
    const inParts = batchedGemm({ a, b, outDtype: "f32", plan: { ...plain.plan, splitK: 4 } });
    expect(inParts.plan.splitK).toBe(4);
    expect(inParts.out.dataSync()).not.toEqual(plain.out.dataSync());
    const single = (x: typeof a) => tensor(backend(), x.dataSync().slice(0, 16 * 256), [16, 256], "bf16");
    const first = gemm({ a: single(a), b: single(b), outDtype: "f32", plan: inParts.plan }).out;
    expect(inParts.out.dataSync().slice(0, 256)).toEqual(first.dataSync());
  });

  testInScope("writes to the given output; an empty sum is zero", () => {
    const out = upload(backend(), gridWideValues("f16", [2, 3, 5], 1));
    const given = { a: zeros(backend(), "f16", [2, 5, 0]), b: zeros(backend(), "f16", [2, 3, 0]), out };
    expect(batchedGemm(given).out).toBe(out);
    expect(Array.from(out.dataSync())).toEqual(new Array(30).fill(0));
  });

  it("refuses incompatible options", () => {
    using _scope = new Scope();
    const of = (dtype: "bf16" | "f16" | "f32", ...shape: readonly number[]) => zeros(backend(), dtype, shape);
    const cases: readonly (readonly [BatchedGemmOptions, new (message: string) => Error, RegExp])[] = [
      [{ a: of("bf16", 2, 4, 8), b: of("bf16", 3, 4, 8) }, ShapeError, /batches must be equal/],
      [{ a: of("bf16", 2, 4, 8), b: of("bf16", 2, 4, 9) }, ShapeError, /layout TN sums over 8/],
      [{ a: of("bf16", 2, 4, 8), b: of("bf16", 2, 4, 8), layout: "NN" }, ShapeError, /sums over 4/],
      [{ a: of("bf16", 4, 8), b: of("bf16", 2, 4, 8) }, ShapeError, /a is \[4,8\]/],
      [{ a: of("bf16", 2, 4, 8), b: of("f16", 2, 4, 8) }, DTypeError, /of one type/],
      [{ a: zeros(backend(), "e4m3", [2, 4, 8]), b: of("bf16", 2, 4, 8) }, DTypeError, /a is e4m3/],
      [{ a: of("bf16", 2, 4, 8), b: of("bf16", 2, 4, 8), out: of("bf16", 2, 4, 5) }, ShapeError, /out is/],
      [
        { a: of("bf16", 2, 4, 8), b: of("bf16", 2, 3, 8), out: of("f32", 2, 3, 4), outDtype: "bf16" },
        DTypeError,
        /out is f32 and outDtype bf16/,
      ],
    ];
    for (const [options, type, message] of cases) {
      expect(() => batchedGemm(options)).toThrow(type);
      expect(() => batchedGemm(options)).toThrow(message);
    }
    const wide = { a: of("f32", 1, 4, 8), b: of("f32", 1, 4, 8) };
    expect(() => batchedGemm(wide)).toThrow(UnsupportedError);
    expect(batchedGemm({ ...wide, datapath: "fp32" }).plan.datapath).toBe("fp32");
  });
});

it("the laws catch a batch whose items all read the first item's a", async () => {
  const right = backendSubject(backend());
  const stuck: Subject = {
    ...right,
    batchedGemm: ({ items, ...input }) =>
      right.batchedGemm({ ...input, items: items.map(({ b }) => ({ b, a: items[0]?.a as typeof b })) }),
  };
  const law = lawNamed("every item of a batch is the product of its own operands");
  expect(
    (await law.check(stuck, right, { runs: 60, seed: derivedSeed(21) })).failure?.counterexample,
  ).toBeTruthy();
});

describe("the fused GELU", () => {
  testInScope("is unsupported on the reference, with the reason, and the exact GELU works", () => {
    const [a, b] = [zeros(backend(), "bf16", [16, 32]), zeros(backend(), "bf16", [16, 32])];
    expect(() => gemm({ a, b, gelu: true, geluEpilogue: "fused" })).toThrow(UnsupportedError);
    expect(() => gemm({ a, b, gelu: true, geluEpilogue: "fused" })).toThrow(
      /approximation.*geluEpilogue exact/,
    );
    expect(gemm({ a, b, gelu: true, geluEpilogue: "exact" }).preGelu?.shape).toEqual([16, 16]);
  });

  testInScope("is refused without the option gelu", () => {
    const x = zeros(backend(), "bf16", [16, 32]);
    expect(() => gemm({ a: x, b: x, geluEpilogue: "fused" })).toThrow(ArgumentError);
    expect(() => gemm({ a: x, b: x, gelu: true, geluEpilogue: "fast" as "fused" })).toThrow(ArgumentError);
  });
});
