/**
 * What `supports` says about products on a GPU depends only on the table of measured pairs of chip and library version.
 */
import { readdirSync, readFileSync } from "node:fs";
import * as fc from "fast-check";
import { describe, expect } from "vitest";
import { gemm as lowering } from "../../../src/backends/cuda/gemm/gemm.js";
import { nativeFamily } from "../../../src/backends/cuda/gemm/route.js";
import type { GemmArgs } from "../../../src/backends/ops/gemm.js";
import { CHIPS, chipOf, type Gpu, HARDWARE_FAMILIES } from "../../../src/formats/chips.js";
import { DATAPATHS, datapathFor, emulatedBy } from "../../../src/formats/datapath.js";
import { zeros } from "../../../src/ops/create.js";
import { gemm } from "../../../src/ops/gemm/gemm.js";
import { FakeGpu, fakeAlgorithm, gemmArgs } from "../harness/addon/fake-gpu.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();

type Pair = readonly [device: string, major: number, minor: number, cublasLt: number];

/** The pairs of chip and library version that recorded vectors name. A row of the table without vectors fails here. */
const MEASURED: readonly Pair[] = recordedPairs();

function recordedPairs(): readonly Pair[] {
  const vectors = new URL("../../vectors/", import.meta.url);
  const files = readdirSync(vectors).filter((name) => /\.jsonl?$/.test(name));
  const findings = files.flatMap((name) => [
    ...readFileSync(new URL(name, vectors), "utf8").matchAll(
      /"(NVIDIA [^",]+), sm_(\d+)(\d), (?:[^"]*, )?cuBLASLt (\d+)\.(\d+)\.(\d+)"/g,
    ),
  ]);
  const pairs = findings.map(([, device = "", major, minor, ...version]): Pair => {
    const [a = 0, b = 0, c = 0] = version.map(Number);
    return [device, Number(major), Number(minor), 10000 * a + 100 * b + c];
  });
  return [...new Map(pairs.map((pair) => [pair.join(), pair])).values()];
}

/** A library version of a measured pair. */
const [[, , , KNOWN]] = MEASURED as readonly [Pair, ...Pair[]];

const names = fc.oneof(
  fc.constantFrom(...MEASURED.map(([name]) => name)),
  fc.constantFrom(
    "NVIDIA H100 PCIe",
    "NVIDIA H100 NVL",
    "NVIDIA GH200 480GB",
    "NVIDIA H200 NVL",
    "NVIDIA B200",
  ),
  fc.constantFrom(
    ...MEASURED.flatMap(([name]) => [`${name} MIG 1g.10gb`, name.toLowerCase(), ` ${name}`, `${name}0`]),
    "",
  ),
  fc.string(),
);
const capabilities = fc.oneof(
  fc.constantFrom([9, 0], [8, 9], [10, 0], [12, 0], [12, 1], [8, 0], [8, 6], [10, 3], [11, 0], [9, 1]),
  fc.tuple(fc.nat({ max: 20 }), fc.nat({ max: 9 })),
);
const versions = fc.oneof(
  fc.constantFrom(KNOWN, 130000, 130101, 130200, 120803, 13010, 0),
  fc.nat({ max: 200000 }),
);
/** Any pair, or a measured pair with at most one field changed. */
const pairs = fc
  .record({
    measured: fc.constantFrom(...MEASURED),
    other: fc.tuple(names, capabilities, versions),
    changed: fc.constantFrom("all", "name", "capability", "version", "nothing"),
  })
  .map(({ measured: [name, major, minor, version], other: otherDevice, changed: changedField }) => {
    const is = (label: string): boolean => changedField === label || changedField === "all";
    const [otherMajor = 0, otherMinor = 0] = otherDevice[1];
    const [a, b] = is("capability") ? [otherMajor, otherMinor] : [major, minor];
    const gpu: Gpu = { name: is("name") ? otherDevice[0] : name, major: a, minor: b };
    return { gpu, version: is("version") ? otherDevice[2] : version };
  });

function answerOf({ gpu, version }: { gpu: Gpu; version: number }, args: GemmArgs) {
  const fakeGpu = new FakeGpu([fakeAlgorithm(66)], gpu);
  fakeGpu.version = version;
  return lowering.supports?.(args, fakeGpu.context);
}

function isMeasured({ gpu, version }: { gpu: Gpu; version: number }): boolean {
  return MEASURED.some(
    ([name, major, minor, blas]) =>
      name === gpu.name && major === gpu.major && minor === gpu.minor && blas === version,
  );
}

describe("a product on a GPU", () => {
  testInScope("agrees in bits for measured pairs, and is unverified for every other", () => {
    for (const [name, major, minor, version] of MEASURED) {
      const args = gemmArgs(backend(), "e4m3", [64, 32, 256]);
      expect(answerOf({ gpu: { name, major, minor }, version }, args)).toEqual({ ok: true, agrees: "bits" });
    }
    const operands = fc.constantFrom("e4m3" as const, "bf16" as const);
    fc.assert(
      fc.property(pairs, operands, (pair, format) => {
        const datapath = nativeFamily(pair.gpu);
        const support = answerOf(pair, gemmArgs(backend(), format, [16, 32, 64], { datapath }));
        if (datapath === "fp32" || isMeasured(pair)) expect(support).toEqual({ ok: true, agrees: "bits" });
        else expect(support).toMatchObject({ ok: true, unverified: expect.stringContaining("not measured") });
      }),
    );
  });

  testInScope(
    "by a hardware datapath is supported only on the chips of its row: sm_120 is not Blackwell, sm_80 is not Ada",
    () => {
      const rows: Readonly<Record<string, string>> = { "8.9": "ada", "9.0": "hopper", "10.0": "blackwell" };
      fc.assert(
        fc.property(pairs, fc.constantFrom(...HARDWARE_FAMILIES), (pair, datapath) => {
          const { major, minor } = pair.gpu;
          const ownRow = rows[`${major}.${minor}`];
          expect(nativeFamily(pair.gpu)).toBe(ownRow ?? "fp32");
          const support = answerOf(pair, gemmArgs(backend(), "bf16", [16, 32, 64], { datapath }));
          if (datapath === ownRow) expect(support).toMatchObject({ ok: true });
          else
            expect(support).toMatchObject({
              ok: false,
              reason: expect.stringContaining(`no datapath ${datapath}`),
            });
        }),
        {
          examples: [
            [{ gpu: { name: "NVIDIA GeForce RTX 5090", major: 12, minor: 0 }, version: 130100 }, "blackwell"],
          ],
        },
      );
    },
  );

  testInScope("uses only measured algorithms if the pair has any", () => {
    fc.assert(
      fc.property(pairs, fc.nat({ max: 100 }), (pair, id) => {
        const chip = chipOf(pair.gpu);
        fc.pre(chip !== undefined);
        const fakeGpu = new FakeGpu([fakeAlgorithm(id)], pair.gpu);
        const args = gemmArgs(backend(), "bf16", [64, 32, 64], { datapath: nativeFamily(pair.gpu) });
        const isTaken = chip?.algorithms === undefined || chip.algorithms.includes(id);
        expect(lowering.supports?.(args, fakeGpu.context)).toMatchObject({ ok: isTaken });
      }),
    );
  });
});

describe("the reference", () => {
  testInScope(
    "repeats a measured algorithm of another library version, and reports the result as unverified",
    () => {
      const codes = zeros(backend(), "e4m3", [16, 256]);
      const fields = { id: 66, tile: 20, stages: 36, cluster: 3, innerShape: 0, swizzle: 0, customOption: 0 };
      const run = (version: number) => {
        const keptFields = { library: "cublasLt", splitK: 1, scheme: "none", extent: [16, 16, 256] } as const;
        const algorithm = { ...fields, ...keptFields, version, data: "0".repeat(128) };
        const plan = { datapath: "hopper-fp8", splitAccumulator: false, splitK: 1, algorithm } as const;
        return gemm({ a: codes, b: codes, outDtype: "f32", plan });
      };
      for (const [, , , version] of MEASURED) expect(run(version)).not.toHaveProperty("unverified");
      fc.assert(
        fc.property(versions, (version) => {
          const { unverified } = run(version);
          if (MEASURED.some(([, , , measured]) => measured === version)) expect(unverified).toBeUndefined();
          else expect(unverified).toMatch(/cuBLASLt .* were not measured/);
        }),
      );
    },
  );
});

describe("the rows", () => {
  testInScope("name each capability once, and measured pairs only where algorithms were measured", () => {
    const keys = CHIPS.map(({ computeCapability }) => computeCapability.join("."));
    expect(new Set(keys).size).toBe(keys.length);
    for (const { algorithms, measured } of CHIPS) expect(measured.length > 0).toBe(algorithms !== undefined);
    const knownChips = CHIPS.flatMap((row) =>
      row.measured.map((pair) => [pair.device, ...row.computeCapability, pair.cublasLt]),
    );
    expect(MEASURED.length).toBeGreaterThan(0);
    expect(knownChips.map(String).sort()).toEqual(MEASURED.map(String).sort());
  });

  testInScope("of datapaths are measured where a chip of their family is", () => {
    for (const family of HARDWARE_FAMILIES) {
      const isKnown = CHIPS.some(({ datapath, measured }) => datapath === family && measured.length > 0);
      for (const [name, row] of Object.entries(DATAPATHS))
        if (name.startsWith(`${family}-`)) expect(row.measured).toBe(isKnown);
    }
  });

  testInScope(
    "of families list the emulated products, which are the products that datapathFor stages as bf16",
    () => {
      const mx = { format: "e4m3", scales: { format: "e8m0", lines: 1, length: 32, pow2: true } } as const;
      for (const family of HARDWARE_FAMILIES) {
        const choice = datapathFor(family, mx, mx, false);
        expect(emulatedBy(family).includes("mx")).toBe(choice.ok && choice.staging === "bf16");
      }
      expect(emulatedBy("exact")).toEqual([]);
    },
  );
});
