/** The calls of the CUDA backend for a product: copies, cuBLASLt's descriptors, and the backend's own epilogue. */
import { describe, expect } from "vitest";
import { algorithmFor, gemm as lowering } from "../../../../../src/backends/cuda/gemm/gemm.js";
import { zeros } from "../../../../../src/ops/create.js";
import { linesOf } from "../../../../../src/ops/gemm/operand.js";
import { Float8BlockQuantizer } from "../../../../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../../../src/quantizers/quantizer.js";
import { algorithmNumbered, FakeGpu, gemmArgs, runsProducts } from "../../../harness/addon/fake-gpu.js";
import { scoped, useBackend } from "../../../harness/suite.js";

const backend = useBackend();

describe("a product on a GPU", () => {
  const run = runsProducts(backend);
  const fresh = (): FakeGpu => new FakeGpu([algorithmNumbered(66)]);

  scoped("whose output cuBLASLt can write is one call", () => {
    const gpu = fresh();
    const { x, w, out, bias } = run(gpu, "bf16", [64, 32, 96], { out: "bf16", bias: "bf16" });
    expect(gpu.launched()).toEqual(["gemm"]);
    expect(gpu.named("gemm")[0]).toMatchObject({
      a: w.data.address,
      b: x.data.address,
      d: out.address,
      alpha: 1,
    });
    expect(gpu.named("gemm")[0]).toMatchObject({ bias: bias?.address, beta: 0, c: undefined });
  });

  scoped("is W times X for cuBLASLt, which is column-major", () => {
    const gpu = fresh();
    run(gpu, "e4m3", [64, 32, 256], { out: "bf16" });
    expect(gpu.named("gemmPlan")[0]).toMatchObject({
      m: 32,
      n: 64,
      k: 256,
      transposeA: true,
      transposeB: false,
      aType: 28,
      dType: 14,
      aPitch: 256,
      bPitch: 256,
      dPitch: 32,
      fastAccumulation: true,
    });
    run(gpu, "e4m3", [64, 32, 256], { out: "bf16", splitAccumulator: true });
    expect(gpu.named("gemmPlan")[1]).toMatchObject({ fastAccumulation: false });
  });

  scoped("of transposed bf16 operands needs no copy; FP8 does", () => {
    const half = fresh();
    run(half, "bf16", [64, 32, 96], { out: "f32", transposed: true });
    expect(half.launched()).toEqual(["gemm"]);
    expect(half.named("gemmPlan")[0]).toMatchObject({
      transposeA: false,
      transposeB: true,
      aPitch: 32,
      bPitch: 64,
    });
    const fp8 = fresh();
    run(fp8, "e4m3", [64, 32, 96], { out: "f32", transposed: true });
    expect(fp8.launched()).toEqual(["gemmOperand", "gemmOperand", "gemm"]);
    expect(fp8.named("gemmOperand")[0]).toMatchObject({
      transposed: true,
      lines: 64,
      depth: 96,
      outPitch: 96,
    });
  });

  scoped("of ragged K or N is padded with zeros, and rounded by our epilogue", () => {
    const gpu = fresh();
    run(gpu, "e4m3", [5, 7, 100], { out: "bf16" });
    expect(gpu.launched()).toEqual(["gemmOperand", "gemmOperand", "gemm", "gemmEpilogue"]);
    expect(gpu.named("gemmPlan")[0]).toMatchObject({ m: 7, n: 5, k: 112, dType: 0, dPitch: 8 });
    expect(gpu.named("gemmEpilogue")[0]).toMatchObject({ rows: 5, columns: 7, sumsPitch: 8, split: false });
  });

  scoped("that cuBLASLt takes only in whole tiles is padded to those", () => {
    const gpu = fresh();
    gpu.smallest = 16;
    run(gpu, "e4m3", [5, 7, 100], { out: "bf16" });
    expect(gpu.named("gemmPlan").at(-1)).toMatchObject({ m: 16, n: 16, k: 128 });
    expect(gpu.named("gemmOperand")[0]).toMatchObject({ lines: 5, depth: 100, outLines: 16, outPitch: 128 });
  });

  scoped("with an epilogue that was not measured is rounded by ours", () => {
    for (const options of [
      { out: "e4m3" },
      { out: "bf16", bias: "f32" },
      { out: "f32", c: "bf16", beta: 1 },
      { out: "bf16", alpha: 0 },
    ] as const) {
      const gpu = fresh();
      run(gpu, "e4m3", [64, 32, 256], options);
      expect(gpu.launched()).toEqual(["gemm", "gemmEpilogue"]);
      expect(gpu.named("gemm")[0]).toMatchObject({ alpha: 1, beta: 0 });
    }
  });

  scoped("with K = 0 applies its epilogue to zeros", () => {
    const gpu = fresh();
    run(gpu, "bf16", [4, 3, 0], { out: "f32" });
    run(gpu, "bf16", [0, 3, 16], { out: "f32" });
    expect(gpu.launched()).toEqual(["gemmEpilogue", "gemmEpilogue"]);
    expect(gpu.named("gemmEpilogue")[0]).toMatchObject({ rows: 4, columns: 3, sums: undefined });
  });

  scoped("of f32 is our own kernel under fp32", () => {
    const gpu = fresh();
    const args = run(gpu, "f32", [4, 3, 8], { out: "f32", datapath: "fp32" });
    expect(gpu.launched()).toEqual(["gemmPlain", "gemmEpilogue"]);
    expect(gpu.named("gemmPlain")[0]).toMatchObject({ x: args.x.data, xPitch: 8, depth: 8 });
    expect(algorithmFor(gpu.context, args)).toBeUndefined();
  });

  scoped("with GELU fused is one call that says it approximates", () => {
    const gpu = fresh();
    const args = gemmArgs(backend(), "bf16", [64, 32, 96], { out: "bf16", preGelu: "bf16", bias: "bf16" });
    const approximate = expect.stringMatching(/approximation/);
    expect(lowering.supports?.(args, gpu.context)).toMatchObject({ ok: true, agrees: { approximate } });
    lowering.run(gpu.context, args);
    expect(gpu.launched()).toEqual(["gemm"]);
    expect(gpu.named("gemmPlan")[0]).toMatchObject({ auxType: 14, biasType: 14 });
    expect(gpu.named("gemm")[0]).toMatchObject({ aux: args.preGelu?.address, d: args.out.address });
  });

  scoped("with GELU fused is refused where cuBLASLt has none", () => {
    const refusals = [
      [[64, 32, 96], { out: "e4m3", preGelu: "bf16" }, /geluEpilogue exact/],
      [[64, 32, 96], { out: "f32", preGelu: "bf16" }, /in the same type/],
      [[64, 12, 96], { out: "f32", preGelu: "f32" }, /multiple of 8/],
      [[64, 32, 0], { out: "bf16", preGelu: "bf16" }, /empty sums/],
      [[64, 32, 96], { out: "f32", preGelu: "f32", datapath: "fp32" }, /fp32/],
    ] as const;
    for (const [size, options, reason] of refusals) {
      const answer = lowering.supports?.(gemmArgs(backend(), "bf16", size, options), fresh().context);
      expect(answer).toMatchObject({ ok: false, reason: expect.stringMatching(reason) });
    }
  });

  scoped("frees all its temporary memory", () => {
    const gpu = fresh();
    run(gpu, "e4m3", [5, 7, 100], { out: "bf16" });
    expect(gpu.taken).toBe(0);
  });

  scoped("in parts that cuBLASLt does not offer is a product for each part, added in order", () => {
    const gpu = fresh();
    gpu.configures = false;
    const args = run(gpu, "bf16", [64, 32, 330], { out: "bf16", splitK: 4 });
    expect(gpu.launched()).toEqual(["gemmOperand", "gemmOperand", "gemm", "gemm", "gemm", "gemmEpilogue"]);
    const steps = gpu.named("gemm").map(({ aOffset, bOffset, beta }) => [aOffset, bOffset, beta]);
    // six tiles of 64 elements in four splits: two tiles each, and none for the last
    expect(steps).toEqual([
      [0, 0, 0],
      [256, 256, 1],
      [512, 512, 1],
    ]);
    expect(
      gpu
        .named("gemmPlan")
        .slice(-3)
        .map(({ k }) => k),
    ).toEqual([128, 128, 80]);
    expect(gpu.named("gemmEpilogue")[0]).toMatchObject({ split: true });
    expect(algorithmFor(gpu.context, args)).toBeUndefined();
  });

  /** A product of two quantized operands. */
  const quantized = (
    input: Quantizer,
    weight: Quantizer,
    [rows, columns, depth]: readonly [number, number, number],
  ) => {
    const lines = (quantizer: Quantizer, count: number) =>
      linesOf("gemm", "a", quantizer.quantize(zeros(backend(), "f32", [count, depth])), {
        direction: "rowwise",
        readsScales: false,
      });
    return { x: lines(input, rows), w: lines(weight, columns) };
  };

  scoped(
    "with scales for each 128 reads them in place if they have cuBLASLt's layout, and copies others to it",
    () => {
      for (const scaleLayout of ["padded", "logical"] as const) {
        const gpu = fresh();
        const input = new Float8BlockQuantizer({ scaleLayout });
        const weight = new Float8BlockQuantizer({ scaleLayout, tile: "128x128" });
        const operands = quantized(input, weight, [64, 256, 384]);
        run(gpu, "e4m3", [64, 256, 384], { operands, out: "bf16", splitAccumulator: true });
        const padded = scaleLayout === "padded";
        expect(gpu.launched()).toEqual(padded ? ["gemm"] : ["relayout", "relayout", "gemm"]);
        const plan = { aScaleMode: 5, bScaleMode: 4, fastAccumulation: false, deviceScalars: false };
        expect(gpu.named("gemmPlan")[0]).toMatchObject(plan);
        if (padded)
          expect(gpu.named("gemm")[0]).toMatchObject({ aScale: operands.w.blockScales?.tensor.address });
        else {
          expect(gpu.named("relayout")[0]).toMatchObject({
            unit: 4,
            to: { placement: { lineStride: 1, blockStride: 64 } },
          });
          expect(gpu.named("relayout")[1]).toMatchObject({
            to: { placement: { lineStride: 4, blockStride: 1, lines: 2, blocks: 3 } },
          });
        }
      }
    },
  );

  scoped("of NVFP4 operands is bf16 on Hopper, with alpha made on the device", () => {
    const gpu = fresh();
    const operands = quantized(new NVFP4Quantizer(), new NVFP4Quantizer(), [64, 32, 64]);
    run(gpu, "bf16", [64, 32, 64], { operands, out: "bf16" });
    expect(gpu.launched()).toEqual(["gemmOperand", "gemmOperand", "gemmAlpha", "gemm"]);
    expect(gpu.named("gemmPlan")[0]).toMatchObject({
      aType: 14,
      bType: 14,
      deviceScalars: true,
      aScaleMode: undefined,
    });
    expect(gpu.named("gemmAlpha")[0]).toMatchObject({
      factors: { amaxW: operands.w.amax, scaleW: undefined },
    });
  });

  scoped("of MXFP8 and NVFP4 operands has cuBLASLt's own scale modes on Blackwell", () => {
    const pairs = [
      [
        new MXFP8Quantizer(),
        { aType: 28, aScaleMode: 2, bScaleMode: 2 },
        { unit: 1, to: { placement: { bytes: 128 * 4, swizzled: true } } },
      ],
      [
        new NVFP4Quantizer(),
        { aType: 33, aScaleMode: 1, bScaleMode: 1 },
        { unit: 1, to: { placement: { bytes: 128 * 8, swizzled: true } } },
      ],
    ] as const;
    for (const [quantizer, plan, relayout] of pairs) {
      const gpu = new FakeGpu([algorithmNumbered(71)], { name: "NVIDIA B200", major: 10, minor: 0 });
      const operands = quantized(quantizer, quantizer, [64, 32, 128]);
      run(gpu, "bf16", [64, 32, 128], { operands, out: "bf16", datapath: "blackwell" });
      expect(gpu.named("gemmPlan")[0]).toMatchObject(plan);
      expect(gpu.named("relayout")[0]).toMatchObject(relayout);
    }
  });

  scoped("of two e5m2 operands, and under exact, is refused", () => {
    const answer = (...given: [Parameters<typeof gemmArgs>[1], object]) =>
      lowering.supports?.(gemmArgs(backend(), given[0], [16, 16, 32], given[1]), fresh().context);
    expect(answer("e5m2", {})).toMatchObject({ ok: false, reason: /no product of e5m2 and e5m2/ });
    expect(answer("e4m3", { datapath: "exact" })).toMatchObject({ ok: false, reason: /datapath exact/ });
  });
});
