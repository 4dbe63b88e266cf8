/** Which products of bf16 rows and codes our kernel for Hopper computes, and with how many splits of K. */
import { expect } from "vitest";
import { algorithmFor, gemm as lowering, splitKFor } from "../../../../../src/backends/cuda/gemm/gemm.js";
import type { GemmArgs } from "../../../../../src/backends/ops/gemm.js";
import { zeros } from "../../../../../src/ops/create.js";
import { linesOf } from "../../../../../src/ops/gemm/operand.js";
import type { QuantizedTensor, QuantizeSpec } from "../../../../../src/tensor/quantized.js";
import { makeSpec } from "../../../../../src/tensor/spec.js";
import { FakeGpu, fakeAlgorithm, gemmArgs } from "../../../harness/addon/fake-gpu.js";
import { drawOperand } from "../../../harness/gemm/products.js";
import { testInScope, useBackend } from "../../../harness/suite.js";

const backend = useBackend();
const H200 = (): FakeGpu => new FakeGpu([fakeAlgorithm(66)]);
const NVFP4 = makeSpec("nvfp4", {});

/** A product of bf16 [rows, depth] by a weight [columns, depth] of zeros. */
function product(
  spec: QuantizeSpec,
  [rows, columns, depth]: readonly [number, number, number],
  options: Parameters<typeof gemmArgs>[3] = {},
): GemmArgs {
  const weight = drawOperand(backend(), spec, [columns, depth], 1) as QuantizedTensor;
  const direction = { direction: "rowwise", readsScales: false } as const;
  const operands = {
    x: linesOf("gemm", "x", zeros(backend(), "bf16", [rows, depth]), direction),
    w: linesOf("gemm", "w", weight, direction),
  };
  return gemmArgs(backend(), "bf16", [rows, columns, depth], { out: "bf16", ...options, operands });
}

function launchesOf(gpu: FakeGpu, args: GemmArgs): readonly string[] {
  expect(lowering.supports?.(args, gpu.context)).toMatchObject({ ok: true });
  lowering.run(gpu.context, args);
  return gpu.launches();
}

const SPECS: readonly (readonly [name: string, spec: QuantizeSpec])[] = [
  ["nvfp4", NVFP4],
  ["mxfp4", makeSpec("mxfp4", {})],
  ["mxfp8", makeSpec("mxfp8", {})],
  ["fp8-block", makeSpec("fp8-block", { tile: "128x128" })],
  ["fp8-current", makeSpec("fp8-current", {})],
];
for (const [name, spec] of SPECS) {
  testInScope(`one call multiplies bf16 rows by ${name}`, () => {
    const gpu = H200();
    const args = product(spec, [64, 96, 256]);
    expect(launchesOf(gpu, args)).toEqual(["gemmFewRows"]);
    expect(gpu.callsOf("gemmFewRows")[0]).toMatchObject({
      rows: 64,
      columns: 96,
      depth: 256,
      splits: 1,
      out: args.out,
    });
    expect(algorithmFor(gpu.context, args)).toBeUndefined();
  });
}

testInScope("our epilogue follows where a result is more than its scaled sum", () => {
  const gpu = H200();
  expect(launchesOf(gpu, product(NVFP4, [3, 32, 128], { bias: "bf16" }))).toEqual([
    "gemmFewRows",
    "gemmEpilogue",
  ]);
  expect(gpu.callsOf("gemmFewRows")[0]?.factors).toEqual({ alpha: 1, inverse: 1 });
  const rows = H200();
  expect(launchesOf(rows, product(makeSpec("fp8-row", {}), [3, 32, 128]))).toEqual([
    "gemmFewRows",
    "gemmEpilogue",
  ]);
});

testInScope("more rows, other K and other GPUs multiply dequantized weights", () => {
  for (const size of [
    [65, 32, 128],
    [64, 32, 96],
  ] as const)
    expect(launchesOf(H200(), product(NVFP4, size))).toEqual(
      ["gemmOperand", "gemm"].toSpliced(1, 0, "gemmAlpha"),
    );
  const ada = new FakeGpu([fakeAlgorithm(66)], { name: "NVIDIA L4", major: 8, minor: 9 });
  const args = product(NVFP4, [4, 32, 128], { datapath: "ada" });
  expect(launchesOf(ada, args)).not.toContain("gemmFewRows");
});

testInScope(
  "scales that are not next to each other along K are left to cuBLASLt, also after the same sizes",
  () => {
    const gpu = H200();
    const { w, ...rest } = product(NVFP4, [4, 32, 128]);
    expect(launchesOf(gpu, { w, ...rest })).toEqual(["gemmFewRows"]);
    const blockScales = w.blockScales && { ...w.blockScales, blockStride: 32, lineStride: 1 };
    expect(launchesOf(gpu, { w: { ...w, blockScales }, ...rest }).slice(1)).not.toContain("gemmFewRows");
  },
);

testInScope("automatic splits depend on N and K only, and divide K at multiples of 128", () => {
  const splits = (rows: number, columns: number, depth: number): number =>
    splitKFor(H200().context, product(NVFP4, [rows, columns, depth], { splitK: "auto" }));
  for (const rows of [1, 16, 64]) expect(splits(rows, 128, 4096)).toBe(16);
  expect(splits(1, 128, 1024)).toBe(8);
  expect(splits(1, 128, 128)).toBe(1);
  expect(splits(2, 6144, 512)).toBe(4);
});

testInScope("splits that are no multiples of 128 long are left to cuBLASLt", () => {
  const gpu = H200();
  const args = product(NVFP4, [4, 32, 256], { splitK: 4 });
  lowering.run(gpu.context, args);
  expect(gpu.launches()).not.toContain("gemmFewRows");
});
