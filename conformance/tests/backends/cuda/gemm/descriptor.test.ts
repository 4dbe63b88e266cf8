/** The launches of the CUDA backend for a batch of products: as many as for one product. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { describe as describeProduct } from "../../../../../src/backends/cuda/gemm/descriptor.js";
import { Scope } from "../../../../../src/tensor/scope.js";
import { FakeGpu, type FakeOptions, fakeAlgorithm, productRunner } from "../../../harness/addon/fake-gpu.js";
import { testInScope, useBackend } from "../../../harness/suite.js";

const backend = useBackend();

it("a batch is one product with a stride from each matrix to the next", () => {
  const operand = { type: "bf16", lines: 128, pitch: 64, transposed: false } as const;
  const product = describeProduct({
    x: operand,
    w: { ...operand, lines: 256, pitch: 256, transposed: true },
    depth: 64,
    out: { type: "f32", pitch: 256 },
    fastAccumulation: false,
    tf32: false,
    deviceScalars: false,
    batch: { count: 8, x: 128 * 64, w: 64 * 256, out: 128 * 256 },
  });
  expect(product).toMatchObject({ m: 256, n: 128, k: 64, transposeA: false, transposeB: false });
  expect(product).toMatchObject({ batch: 8, aStride: 64 * 256, bStride: 128 * 64, dStride: 128 * 256 });
});

describe("a product on a GPU", () => {
  const run = productRunner(backend);
  const makeTensor = (): FakeGpu => new FakeGpu([fakeAlgorithm(66)]);

  testInScope("of a batch is one call as well, matrix after matrix", () => {
    const gpu = makeTensor();
    run(gpu, "bf16", [64, 32, 96], { batch: 5, out: "bf16" });
    run(gpu, "bf16", [64, 32, 96], { batch: 5, out: "bf16", transposed: true });
    run(gpu, "bf16", [64, 32, 96], { out: "bf16" });
    expect(gpu.launches()).toEqual(["gemm", "gemm", "gemm"]);
    const strides = { aStride: 32 * 96, bStride: 64 * 96, dStride: 64 * 32 };
    expect(gpu.callsOf("gemmPlan")[0]).toMatchObject({ batch: 5, m: 32, n: 64, k: 96, ...strides });
    expect(gpu.callsOf("gemmPlan")[1]).toMatchObject({ batch: 5, transposeA: false, ...strides });
    expect(gpu.callsOf("gemmPlan")[2]).toMatchObject({ batch: 1 });
  });

  testInScope("of a ragged batch is padded by one call, and rounded by one call", () => {
    const gpu = makeTensor();
    run(gpu, "bf16", [5, 7, 9], { batch: 3, out: "bf16" });
    expect(gpu.launches()).toEqual(["gemmOperand", "gemmOperand", "gemm", "gemmEpilogue"]);
    expect(gpu.callsOf("gemmOperand")[0]).toMatchObject({ lines: 15, depth: 9, outLines: 15, outPitch: 32 });
    expect(gpu.callsOf("gemmPlan")[0]).toMatchObject({ batch: 3, k: 16, bStride: 5 * 16, dStride: 5 * 8 });
    expect(gpu.callsOf("gemmEpilogue")[0]).toMatchObject({
      rows: 15,
      columns: 7,
      sumsPitch: 8,
      sumsSkipped: 0,
    });

    const transposedArgs = makeTensor();
    const { x } = run(transposedArgs, "bf16", [5, 7, 9], { batch: 3, out: "bf16", transposed: true });
    const item = { batch: 3, lines: 5, outLines: 5, data: x.data };
    expect(transposedArgs.callsOf("gemmOperand")[0]).toMatchObject(item);

    const tiledTensor = makeTensor();
    tiledTensor.minimumRows = 16;
    const { out } = run(tiledTensor, "bf16", [5, 7, 9], { batch: 2, out: "bf16" });
    expect(tiledTensor.callsOf("gemmOperand")[0]).toMatchObject({ batch: 2, lines: 5, outLines: 16 });
    const roundedItems = { rows: 10, itemRows: 5, sumsPitch: 16, sumsSkipped: 11, out };
    expect(tiledTensor.callsOf("gemmEpilogue")).toMatchObject([roundedItems]);
  });

  testInScope("of a batch enqueues as much as one of its items, whatever its sizes and directions", () => {
    const size = fc.integer({ min: 1, max: 70 });
    const kinds = fc.record({
      format: fc.constantFrom<"bf16" | "f32">("bf16", "f32"),
      transposed: fc.boolean(),
      smallest: fc.constantFrom(1, 16),
      batch: fc.integer({ min: 2, max: 9 }),
    });
    fc.assert(
      fc.property(
        size,
        size,
        size,
        kinds,
        (rows, columns, depth, { format, transposed: isTransposed, smallest, batch }) => {
          using _scope = new Scope();
          const datapath = format === "f32" ? "fp32" : "hopper";
          const launchCounts = (options: FakeOptions): readonly string[] => {
            const gpu = makeTensor();
            gpu.minimumRows = smallest;
            run(gpu, format, [rows, columns, depth], {
              transposed: isTransposed,
              datapath,
              out: "f32",
              ...options,
            });
            return gpu.launches();
          };
          expect(launchCounts({ batch })).toEqual(launchCounts({}));
        },
      ),
      { seed: 1 },
    );
  });

  testInScope("of a batch of f32 is our own kernel once", () => {
    const gpu = makeTensor();
    run(gpu, "f32", [4, 3, 8], { batch: 6, out: "f32", datapath: "fp32" });
    expect(gpu.launches()).toEqual(["gemmPlain", "gemmEpilogue"]);
    expect(gpu.callsOf("gemmPlain")[0]).toMatchObject({ batch: 6, rows: 4, columns: 3, depth: 8 });
    expect(gpu.callsOf("gemmEpilogue")[0]).toMatchObject({ rows: 24 });
  });
});
