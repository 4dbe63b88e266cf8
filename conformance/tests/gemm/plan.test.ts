/** Plans of products: how the reference follows a plan, and how the CUDA backend finds and replays an algorithm. */
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { algorithmFor, gemm as lowering } from "../../../src/backends/cuda/gemm/gemm.js";
import { readPlan } from "../../../src/cli/commands/gemm-plan.js";
import { DISK } from "../../../src/cli/files.js";
import { ArgumentError, UnsupportedError } from "../../../src/errors.js";
import { algorithmFault, type GemmAlgorithm } from "../../../src/formats/gemm-algorithm.js";
import { zeros } from "../../../src/ops/create.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { FakeGpu, fakeAlgorithm, gemmArgs } from "../harness/addon/fake-gpu.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();

const STORED: GemmAlgorithm = {
  library: "cublasLt",
  version: 130100,
  id: 66,
  tile: 20,
  stages: 36,
  cluster: 3,
  innerShape: 0,
  swizzle: 0,
  customOption: 0,
  splitK: 1,
  scheme: "none",
  extent: [16, 16, 256],
  data: "0000000f".repeat(16),
};

describe("the reference", () => {
  const multiply = (algorithm: GemmAlgorithm, splitK = algorithm.splitK) => {
    const codes = zeros(backend(), "e4m3", [16, 256]);
    const plan = { datapath: "hopper-fp8", splitAccumulator: false, splitK, algorithm } as const;
    return gemm({ a: codes, b: codes, outDtype: "f32", plan }).plan;
  };

  testInScope("computes by a plan with a measured algorithm, using the fields that decide bits", () => {
    const expected = { datapath: "hopper-fp8", splitAccumulator: false };
    expect(multiply(STORED)).toEqual({ ...expected, splitK: 1 });
    for (const scheme of ["computeType", "inPlace", "outputType"] as const)
      expect(multiply({ ...STORED, splitK: 2, scheme })).toEqual({ ...expected, splitK: 2 });
  });

  testInScope("refuses an algorithm that adds in an order nobody measured", () => {
    expect(() => multiply({ ...STORED, id: 24 })).toThrow(/algorithm 24 .*was not measured/);
    expect(() => multiply({ ...STORED, id: 24 })).toThrow(UnsupportedError);
  });

  testInScope("refuses an inconsistent or invalid plan", () => {
    expect(() => multiply(STORED, 2)).toThrow(/splitK 2 and its algorithm 1/);
    expect(() => multiply({ ...STORED, data: "00" })).toThrow(ArgumentError);
  });

  testInScope("uses one part if splitK is auto", () => {
    const codes = zeros(backend(), "e4m3", [16, 256]);
    expect(gemm({ a: codes, b: codes, splitK: "auto" }).plan.splitK).toBe(1);
  });
});

it("an algorithm survives JSON, and a field that does not is named in the error", () => {
  expect(algorithmFault(JSON.parse(JSON.stringify(STORED)))).toBeUndefined();
  const broken: readonly (readonly [string, unknown])[] = [
    ["library", "other"],
    ["id", -1],
    ["splitK", 0],
    ["scheme", "toString"],
    ["extent", [1, 2]],
    ["data", "zz".repeat(64)],
  ];
  for (const [field, value] of broken) expect(algorithmFault({ ...STORED, [field]: value })?.[0]).toBe(field);
  for (const value of [null, 7, "text", []]) expect(algorithmFault(value)?.[0]).toBe("library");
});

it("the command line reads the plan it printed, and names what a plan lacks", async () => {
  const file = join(mkdtempSync(join(tmpdir(), "lockstep-plan-")), "plan.json");
  const plan = { datapath: "hopper-fp8", splitAccumulator: true, splitK: 1, algorithm: STORED };
  const read = (value: unknown) => {
    writeFileSync(file, JSON.stringify(value));
    return readPlan(DISK, file);
  };
  expect(await read(plan)).toEqual(plan);
  await expect(read({ ...plan, algorithm: { ...STORED, scheme: 2 } })).rejects.toThrow(
    /plan.json: algorithm.scheme is 2; one of none, inPlace, computeType, outputType is needed/,
  );
  await expect(read({ ...plan, algorithm: null })).rejects.toThrow(/algorithm.library is absent/);
});

describe("the algorithm on a GPU", () => {
  testInScope(
    "is the first measured one without split-K, and is requested once for each kind of product",
    () => {
      const gpu = new FakeGpu([fakeAlgorithm(24), fakeAlgorithm(66, { tile: 7 }), fakeAlgorithm(66)]);
      for (let i = 0; i < 3; i++) {
        const args = gemmArgs(backend(), "e4m3", [64, 32, 256]);
        expect(lowering.supports?.(args, gpu.context)).toEqual({ ok: true, agrees: "bits" });
        lowering.run(gpu.context, args);
        expect(algorithmFor(gpu.context, args)).toMatchObject({
          id: 66,
          tile: 7,
          splitK: 1,
          extent: [64, 32, 256],
        });
      }
      expect(gpu.callsOf("gemmCandidates")).toEqual([expect.objectContaining({ schemes: 0 })]);
      expect(gpu.callsOf("gemm")).toHaveLength(3);
    },
  );

  testInScope(
    "is searched among all algorithms, then configured, if the first answer has no measured one",
    () => {
      const split = fakeAlgorithm(66, { splitK: 4, scheme: 2 });
      const gpu = new FakeGpu([split]);
      gpu.findsWithoutSplit = false;
      const args = gemmArgs(backend(), "e4m3", [128, 128, 8192], { splitAccumulator: true });
      expect(algorithmFor(gpu.context, args)).toMatchObject({ id: 66, splitK: 1, scheme: "none" });
      expect(gpu.callsOf("gemmConfigure")).toEqual([expect.objectContaining({ splitK: 1, scheme: 0 })]);
    },
  );

  testInScope("may use split-K if splitK is auto, and the plan has the number of parts", () => {
    const gpu = new FakeGpu([
      fakeAlgorithm(62, { splitK: 132 }),
      fakeAlgorithm(66, { splitK: 4, scheme: 2 }),
    ]);
    const args = gemmArgs(backend(), "bf16", [128, 128, 8192], { splitK: "auto" });
    expect(algorithmFor(gpu.context, args)?.splitK).toBe(4);
  });

  testInScope("is not one whose order of additions is unknown: the product is refused", () => {
    const gpu = new FakeGpu([fakeAlgorithm(24), fakeAlgorithm(62, { splitK: 132 })]);
    const args = gemmArgs(backend(), "bf16", [64, 64, 64]);
    expect(lowering.supports?.(args, gpu.context)).toMatchObject({
      ok: false,
      reason: /no algorithm .*bf16 \[64,64\] by bf16 \[64,64\].*order of additions/,
    });
    expect(gpu.callsOf("gemmForget")).toHaveLength(gpu.callsOf("gemmPlan").length);
  });

  testInScope("may be any on an unmeasured GPU, whose results are reported as unverified", () => {
    const gpu = new FakeGpu([fakeAlgorithm(71)], { name: "NVIDIA B200", major: 10, minor: 0 });
    const args = gemmArgs(backend(), "bf16", [64, 64, 64], { datapath: "blackwell" });
    expect(lowering.supports?.(args, gpu.context)).toMatchObject({ ok: true, unverified: /arXiv/ });
    expect(algorithmFor(gpu.context, args)?.id).toBe(71);
    const hopper = gemmArgs(backend(), "bf16", [64, 64, 64]);
    expect(lowering.supports?.(hopper, gpu.context)).toMatchObject({
      ok: false,
      reason: /no datapath hopper/,
    });
  });

  testInScope(
    "of a plan is used unchanged by the same library version, else configured from its attributes",
    () => {
      const args = gemmArgs(backend(), "e4m3", [16, 16, 256], { algorithm: STORED });
      const same = new FakeGpu([fakeAlgorithm(66)]);
      expect(algorithmFor(same.context, args)).toMatchObject({ id: 66, data: STORED.data });
      expect(same.callsOf("gemmCandidates")).toEqual([]);
      expect(same.callsOf("gemmConfigure")).toEqual([]);
      const newer = new FakeGpu([fakeAlgorithm(66)]);
      newer.version = 130200;
      expect(algorithmFor(newer.context, { ...args })).toMatchObject({ id: 66, tile: 20, version: 130200 });
      const other = { ...args, algorithm: { ...STORED, extent: [16, 16, 512] as const } };
      expect(lowering.supports?.(other, same.context)).toMatchObject({ ok: false, reason: /for 16x16x512/ });
    },
  );
});
