/** The calls of the CUDA backend for a product: copies, cuBLASLt's descriptors, and the backend's own epilogue. */
import { describe, expect } from "vitest";
import { algorithmFor, gemm as lowering } from "../../../../../src/backends/cuda/gemm/gemm.js";
import { zeros } from "../../../../../src/ops/create.js";
import { linesOf } from "../../../../../src/ops/gemm/operand.js";
import { Float8BlockQuantizer } from "../../../../../src/quantizers/float8-block.js";
import { MXFP8Quantizer } from "../../../../../src/quantizers/mx.js";
import { NVFP4Quantizer } from "../../../../../src/quantizers/nvfp4.js";
import type { Quantizer } from "../../../../../src/quantizers/quantizer.js";
import { FakeGpu, fakeAlgorithm, gemmArgs, productRunner } from "../../../harness/addon/fake-gpu.js";
import { testInScope, useBackend } from "../../../harness/suite.js";

const backend = useBackend();

describe("a product on a GPU", () => {
  const run = productRunner(backend);
  const makeTensor = (): FakeGpu => new FakeGpu([fakeAlgorithm(66)]);

  testInScope("whose output cuBLASLt can write is one call", () => {
    const gpu = makeTensor();
    const { x, w, out, bias } = run(gpu, "bf16", [64, 32, 96], { out: "bf16", bias: "bf16" });
    expect(gpu.launches()).toEqual(["gemm"]);
    expect(gpu.callsOf("gemm")[0]).toMatchObject({
      a: w.data.address,
      b: x.data.address,
      d: out.address,
      alpha: 1,
    });
    expect(gpu.callsOf("gemm")[0]).toMatchObject({ bias: bias?.address, beta: 0, c: undefined });
  });

  testInScope("is W times X for cuBLASLt, which is column-major", () => {
    const gpu = makeTensor();
    run(gpu, "e4m3", [64, 32, 256], { out: "bf16" });
    expect(gpu.callsOf("gemmPlan")[0]).toMatchObject({
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
    expect(gpu.callsOf("gemmPlan")[1]).toMatchObject({ fastAccumulation: false });
  });

  testInScope("of transposed bf16 operands needs no copy; FP8 does", () => {
    const half = makeTensor();
    run(half, "bf16", [64, 32, 96], { out: "f32", transposed: true });
    expect(half.launches()).toEqual(["gemm"]);
    expect(half.callsOf("gemmPlan")[0]).toMatchObject({
      transposeA: false,
      transposeB: true,
      aPitch: 32,
      bPitch: 64,
    });
    const fp8 = makeTensor();
    run(fp8, "e4m3", [64, 32, 96], { out: "f32", transposed: true });
    expect(fp8.launches()).toEqual(["gemmOperand", "gemmOperand", "gemm"]);
    expect(fp8.callsOf("gemmOperand")[0]).toMatchObject({
      transposed: true,
      lines: 64,
      depth: 96,
      outPitch: 96,
    });
  });

  testInScope("of ragged K or N is padded with zeros, and rounded by our epilogue", () => {
    const gpu = makeTensor();
    run(gpu, "e4m3", [5, 7, 100], { out: "bf16" });
    expect(gpu.launches()).toEqual(["gemmOperand", "gemmOperand", "gemm", "gemmEpilogue"]);
    expect(gpu.callsOf("gemmPlan")[0]).toMatchObject({ m: 7, n: 5, k: 112, dType: 0, dPitch: 8 });
    expect(gpu.callsOf("gemmEpilogue")[0]).toMatchObject({ rows: 5, columns: 7, sumsPitch: 8, split: false });
  });

  testInScope("that cuBLASLt accepts only in whole tiles is padded to whole tiles", () => {
    const gpu = makeTensor();
    gpu.minimumRows = 16;
    run(gpu, "e4m3", [5, 7, 100], { out: "bf16" });
    expect(gpu.callsOf("gemmPlan").at(-1)).toMatchObject({ m: 16, n: 16, k: 128 });
    expect(gpu.callsOf("gemmOperand")[0]).toMatchObject({
      lines: 5,
      depth: 100,
      outLines: 16,
      outPitch: 128,
    });
  });

  testInScope("with an epilogue that was not measured is rounded by our kernel", () => {
    for (const options of [
      { out: "e4m3" },
      { out: "bf16", bias: "f32" },
      { out: "f32", c: "bf16", beta: 1 },
      { out: "bf16", alpha: 0 },
    ] as const) {
      const gpu = makeTensor();
      run(gpu, "e4m3", [64, 32, 256], options);
      expect(gpu.launches()).toEqual(["gemm", "gemmEpilogue"]);
      expect(gpu.callsOf("gemm")[0]).toMatchObject({ alpha: 1, beta: 0 });
    }
  });

  testInScope("with K = 0 applies its epilogue to zeros", () => {
    const gpu = makeTensor();
    run(gpu, "bf16", [4, 3, 0], { out: "f32" });
    run(gpu, "bf16", [0, 3, 16], { out: "f32" });
    expect(gpu.launches()).toEqual(["gemmEpilogue", "gemmEpilogue"]);
    expect(gpu.callsOf("gemmEpilogue")[0]).toMatchObject({ rows: 4, columns: 3, sums: undefined });
  });

  testInScope("of f32 is our own kernel under fp32", () => {
    const gpu = makeTensor();
    const args = run(gpu, "f32", [4, 3, 8], { out: "f32", datapath: "fp32" });
    expect(gpu.launches()).toEqual(["gemmPlain", "gemmEpilogue"]);
    expect(gpu.callsOf("gemmPlain")[0]).toMatchObject({ x: args.x.data, xPitch: 8, depth: 8 });
    expect(algorithmFor(gpu.context, args)).toBeUndefined();
  });

  testInScope("with GELU fused is one call that says it approximates", () => {
    const gpu = makeTensor();
    const args = gemmArgs(backend(), "bf16", [64, 32, 96], { out: "bf16", preGelu: "bf16", bias: "bf16" });
    const approximate = expect.stringMatching(/approximation/);
    expect(lowering.supports?.(args, gpu.context)).toMatchObject({ ok: true, agrees: { approximate } });
    lowering.run(gpu.context, args);
    expect(gpu.launches()).toEqual(["gemm"]);
    expect(gpu.callsOf("gemmPlan")[0]).toMatchObject({ auxType: 14, biasType: 14 });
    expect(gpu.callsOf("gemm")[0]).toMatchObject({ aux: args.preGelu?.address, d: args.out.address });
  });

  testInScope("with GELU fused is refused where cuBLASLt has no such epilogue", () => {
    const refusals = [
      [[64, 32, 96], { out: "e4m3", preGelu: "bf16" }, /geluEpilogue exact/],
      [[64, 32, 96], { out: "f32", preGelu: "bf16" }, /in the same type/],
      [[64, 12, 96], { out: "f32", preGelu: "f32" }, /multiple of 8/],
      [[64, 32, 0], { out: "bf16", preGelu: "bf16" }, /empty sums/],
      [[64, 32, 96], { out: "f32", preGelu: "f32", datapath: "fp32" }, /fp32/],
    ] as const;
    for (const [size, options, reason] of refusals) {
      const answer = lowering.supports?.(gemmArgs(backend(), "bf16", size, options), makeTensor().context);
      expect(answer).toMatchObject({ ok: false, reason: expect.stringMatching(reason) });
    }
  });

  testInScope("frees all its temporary memory", () => {
    const gpu = makeTensor();
    run(gpu, "e4m3", [5, 7, 100], { out: "bf16" });
    expect(gpu.liveTemporaries).toBe(0);
  });

  testInScope("in parts that cuBLASLt does not offer is a product for each part, added in order", () => {
    const gpu = makeTensor();
    gpu.canConfigure = false;
    const args = run(gpu, "bf16", [64, 32, 330], { out: "bf16", splitK: 4 });
    expect(gpu.launches()).toEqual(["gemmOperand", "gemmOperand", "gemm", "gemm", "gemm", "gemmEpilogue"]);
    const steps = gpu.callsOf("gemm").map(({ aOffset, bOffset, beta }) => [aOffset, bOffset, beta]);
    // six tiles of 64 elements in four splits: two tiles each, and none for the last
    expect(steps).toEqual([
      [0, 0, 0],
      [256, 256, 1],
      [512, 512, 1],
    ]);
    expect(
      gpu
        .callsOf("gemmPlan")
        .slice(-3)
        .map(({ k }) => k),
    ).toEqual([128, 128, 80]);
    expect(gpu.callsOf("gemmEpilogue")[0]).toMatchObject({ split: true });
    expect(algorithmFor(gpu.context, args)).toBeUndefined();
  });

  /** A product of two quantized operands. */
  const quantizedOperand = (
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

  testInScope(
    "with scales for each 128 reads them in place if they have cuBLASLt's layout, and copies others to it",
    () => {
      for (const scaleLayout of ["padded", "logical"] as const) {
        const gpu = makeTensor();
        const input = new Float8BlockQuantizer({ scaleLayout });
        const weight = new Float8BlockQuantizer({ scaleLayout, tile: "128x128" });
        const operands = quantizedOperand(input, weight, [64, 256, 384]);
        run(gpu, "e4m3", [64, 256, 384], { operands, out: "bf16", splitAccumulator: true });
        const isPadded = scaleLayout === "padded";
        expect(gpu.launches()).toEqual(isPadded ? ["gemm"] : ["relayout", "relayout", "gemm"]);
        const plan = { aScaleMode: 5, bScaleMode: 4, fastAccumulation: false, deviceScalars: false };
        expect(gpu.callsOf("gemmPlan")[0]).toMatchObject(plan);
        if (isPadded)
          expect(gpu.callsOf("gemm")[0]).toMatchObject({ aScale: operands.w.blockScales?.tensor.address });
        else {
          expect(gpu.callsOf("relayout")[0]).toMatchObject({
            unit: 4,
            to: { placement: { lineStride: 1, blockStride: 64 } },
          });
          expect(gpu.callsOf("relayout")[1]).toMatchObject({
            to: { placement: { lineStride: 4, blockStride: 1, lines: 2, blocks: 3 } },
          });
        }
      }
    },
  );

  testInScope("of NVFP4 operands is bf16 on Hopper, with alpha made on the device", () => {
    const gpu = makeTensor();
    const operands = quantizedOperand(new NVFP4Quantizer(), new NVFP4Quantizer(), [64, 32, 64]);
    run(gpu, "bf16", [64, 32, 64], { operands, out: "bf16" });
    expect(gpu.launches()).toEqual(["gemmOperand", "gemmOperand", "gemmAlpha", "gemm"]);
    expect(gpu.callsOf("gemmPlan")[0]).toMatchObject({
      aType: 14,
      bType: 14,
      deviceScalars: true,
      aScaleMode: undefined,
    });
    expect(gpu.callsOf("gemmAlpha")[0]).toMatchObject({
      factors: { amaxW: operands.w.amax, scaleW: undefined },
    });
  });

  testInScope("of MXFP8 and NVFP4 operands has cuBLASLt's own scale modes on Blackwell", () => {
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
      const gpu = new FakeGpu([fakeAlgorithm(71)], { name: "NVIDIA B200", major: 10, minor: 0 });
      const operands = quantizedOperand(quantizer, quantizer, [64, 32, 128]);
      run(gpu, "bf16", [64, 32, 128], { operands, out: "bf16", datapath: "blackwell" });
      expect(gpu.callsOf("gemmPlan")[0]).toMatchObject(plan);
      expect(gpu.callsOf("relayout")[0]).toMatchObject(relayout);
    }
  });

  testInScope("of two e5m2 operands, and under exact, is refused", () => {
    const answer = (...args: [Parameters<typeof gemmArgs>[1], object]) =>
      lowering.supports?.(gemmArgs(backend(), args[0], [16, 16, 32], args[1]), makeTensor().context);
    expect(answer("e5m2", {})).toMatchObject({ ok: false, reason: /no product of e5m2 and e5m2/ });
    expect(answer("e4m3", { datapath: "exact" })).toMatchObject({ ok: false, reason: /datapath exact/ });
  });
});
