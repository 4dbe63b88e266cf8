/**
 * The steps that the CUDA backend takes itself, where cuBLASLt would add, scale or split differently from the
 * specification.
 */
import { describe, expect } from "vitest";
import { gemm as lowering } from "../../../../../src/backends/cuda/gemm/gemm.js";
import type { GemmArgs } from "../../../../../src/backends/ops/gemm.js";
import { tensor, zeros } from "../../../../../src/ops/create.js";
import { linesOf } from "../../../../../src/ops/gemm/operand.js";
import { Float8CurrentScalingQuantizer } from "../../../../../src/quantizers/float8.js";
import { FakeGpu, fakeAlgorithm, gemmArgs } from "../../../harness/addon/fake-gpu.js";
import { testInScope, useBackend } from "../../../harness/suite.js";

const backend = useBackend();

function run(args: GemmArgs): FakeGpu {
  const gpu = new FakeGpu([fakeAlgorithm(66)]);
  lowering.run(gpu.context, args);
  return gpu;
}

describe("cuBLASLt", () => {
  testInScope(
    "is not given device scale factors with split-K, because it omits the addition where those are zero",
    () => {
      const operand = (lines: number) =>
        linesOf(
          "gemm",
          "a",
          new Float8CurrentScalingQuantizer().quantize(zeros(backend(), "f32", [lines, 256])),
          {
            direction: "rowwise",
            readsScales: false,
          },
        );
      const operands = { x: operand(64), w: operand(32) };
      const product = (splitK: number) =>
        run(gemmArgs(backend(), "e4m3", [64, 32, 256], { operands, splitK }));
      expect(product(1).launches()).toEqual(["gemm"]);
      const split = product(2);
      expect(split.launches()).toEqual(["gemm", "gemmEpilogue"]);
      expect(split.callsOf("gemmPlan").at(-1)).toMatchObject({ aScaleMode: undefined, dType: 0 });
      expect(split.callsOf("gemmForget")).toHaveLength(1);
    },
  );

  testInScope("is not given beta = 1 where it adds in place, because it would round twice", () => {
    const separateArgs = gemmArgs(backend(), "bf16", [64, 32, 96], { out: "bf16", c: "bf16", beta: 1 });
    expect(run(separateArgs).callsOf("gemmPlan")[0]).toMatchObject({ deviceScalars: false });
    const c = separateArgs.out as NonNullable<GemmArgs["c"]>;
    const gpu = run({ ...separateArgs, c });
    expect(gpu.launches()).toEqual(["gemmAlpha", "gemm"]);
    expect(gpu.callsOf("gemmPlan")[0]).toMatchObject({ deviceScalars: true });
    expect(run({ ...separateArgs, c, beta: 0.5 }).callsOf("gemmPlan")[0]).toMatchObject({
      deviceScalars: false,
    });
  });

  testInScope("takes factors of FP8 operands on the device with alpha, where beta is hidden from it", () => {
    const args = gemmArgs(backend(), "e4m3", [64, 32, 256], { beta: 1 });
    const tensorScale = tensor(backend(), [2]);
    const [x, w] = [
      { ...args.x, tensorScale },
      { ...args.w, tensorScale },
    ];
    const gpu = run({ ...args, x, w, c: args.out as NonNullable<GemmArgs["c"]> });
    expect(gpu.launches()).toEqual(["gemmAlpha", "gemm"]);
    expect(gpu.callsOf("gemmPlan")[0]).toMatchObject({ aScaleMode: undefined, bScaleMode: undefined });
    expect(gpu.callsOf("gemmAlpha")[0]).toMatchObject({
      factors: { scaleW: tensorScale, scaleX: tensorScale },
    });
  });

  testInScope(
    "is not given split-K if its parts, floor(K / splitK) in whole tiles, would not reach the end of K",
    () => {
      const depths = (depth: number, splitK: number) =>
        run(gemmArgs(backend(), "bf16", [32, 32, depth], { transposed: true, splitK }))
          .callsOf("gemmPlan")
          .map(({ k }) => k);
      expect(depths(259, 3)).toEqual([259]);
      expect(depths(259, 4).at(-1)).toBe(320);
      expect(depths(129, 2).at(-1)).toBe(192);
      expect(depths(128, 2)).toEqual([128]);
    },
  );
});
