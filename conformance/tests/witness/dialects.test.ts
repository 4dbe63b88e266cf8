// The recorded results of other libraries' quantizers on a CPU are complete, and their inputs can be drawn again. Other tests
// compare the library's dialects with them.
import { describe, expect, it } from "vitest";
import { drawValues } from "./dialects/draws.js";
import {
  difference,
  ELEMENT_BYTES,
  type RecordedCase,
  type RecordedDialect,
  recordedPackages,
  recordedRows,
  rowsOf,
  sha256,
} from "./dialects/recorded.js";

const packages = recordedPackages();
const dialects = packages.flatMap((from) => from.dialects.map((dialect) => ({ from, ...dialect })));
const cases = dialects.flatMap(({ from, dialect, cases }) =>
  cases.map((recorded) => ({ from, dialect, ...recorded })),
);
const bytesOf = (array: Uint8Array | Uint16Array | Uint32Array): Uint8Array =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
const nameOf = ({ dialect, case: name, dtype }: { dialect: string } & RecordedCase): string =>
  `${dialect} ${name} ${dtype}`;

const RULES = ["floor", "rceil", "ceil", "even"];
const EXPECTED: Readonly<Record<string, readonly string[]>> = {
  torchao: [
    ...["mxfp8", "mxfp8-e5m2", "mxfp6-e2m3", "mxfp6-e3m2", "mxfp4"].flatMap((family) =>
      RULES.map((rule) => `torchao-${family}-${rule}`),
    ),
    ...["nvfp4", "nvfp4-two-level", "fp8-tensor", "fp8-row"].map((name) => `torchao-${name}`),
  ],
  "compressed-tensors": [
    ...["fp8-tensor", "fp8-channel", "fp8-block", "nvfp4", "mxfp4", "mxfp6", "mxfp8"],
    ...["int8-channel", "int4-group"],
  ].map((name) => `ct-${name}`),
  "nvidia-modelopt": [
    ...["fp8", "fp8-qtensor", "fp8-block", "nvfp4", "mxfp8", "mxfp4", "int8-row", "int4-block"],
  ].map((name) => `modelopt-${name}`),
  gguf: ["gguf-mxfp4", "gguf-nvfp4"],
  "libggml-python": ["ggml-nvfp4"],
  triton_kernels: ["triton-mxfp4", "triton-mxfp8", "triton-mxfp8-e5m2"],
  "amd-quark": ["quark-amdfp4"],
  "fbgemm-gpu-genai": ["fbgemm-fp8", "fbgemm-fp8-ub1200", "fbgemm-fp8-block"],
  transformers: ["transformers-fp8-block", "transformers-ue8m0", "gptoss-mxfp4"],
  DeepGEMM: ["fp8-token", "fp8-block", "ue8m0-token", "ue8m0", "mxfp4"].map((name) => `deepseek-${name}`),
  microxcaling: [
    ...["", "-even"].flatMap((rounding) =>
      ["mxfp8", "mxfp8-e5m2", "mxfp6-e3m2", "mxfp6-e2m3", "mxfp4", "mxint8"].map(
        (family) => `ocp-${family}${rounding}`,
      ),
    ),
    ...["ocp-mxfp8-floor", "ocp-mxfp4-floor"],
  ],
};

/** The results that a package does not return on a CPU. Every other dialect has codes, scales and values. */
function comparedFields(
  { dialect }: RecordedDialect,
  stored: boolean,
): readonly ("codes" | "scales" | "values")[] {
  if (stored || dialect.startsWith("ocp-")) return ["values"];
  if (dialect === "gguf-nvfp4") return ["scales"];
  const silent = /^fbgemm|^deepseek-(fp8|ue8m0)|^modelopt-int4/.test(dialect);
  return silent ? ["codes", "scales"] : ["codes", "scales", "values"];
}

describe("the witnesses of dialects", () => {
  it("name a version and hold every dialect", () => {
    expect(
      Object.fromEntries(
        packages.map(({ origin, dialects }) => [
          origin.package,
          dialects.map(({ dialect }) => dialect).sort(),
        ]),
      ),
    ).toEqual(Object.fromEntries(Object.entries(EXPECTED).map(([name, rows]) => [name, [...rows].sort()])));
    for (const { origin } of packages) expect(origin.version).toMatch(/\d+\.\d+|[0-9a-f]{40}/);
  });

  it.each(dialects)("hold 10^5 elements, every bf16 amax and all results of $dialect", (row) => {
    const elements = row.cases.reduce((sum, { shape: [rows, columns] }) => sum + rows * columns, 0);
    expect(elements).toBeGreaterThanOrEqual(100_000);
    const dtypes = [...new Set(row.cases.map(({ dtype }) => dtype))].filter((dtype) => dtype !== "u8");
    const swept = row.cases
      .filter(({ case: name }) => name === "amax")
      .map(({ dtype, shape }) => [dtype, shape[0]]);
    const tiled = row.dialect === "deepseek-fp8-block" || row.dialect === "deepseek-ue8m0";
    expect(swept).toEqual(tiled ? [] : dtypes.map((dtype) => [dtype, 0x7f80]));
    for (const { dtype, raises, results } of row.cases) {
      expect(raises === undefined).toBe(results !== undefined);
      if (results === undefined) continue;
      const { codes, values, ...scales } = results;
      const present = [codes && "codes", Object.keys(scales).length > 0 && "scales", values && "values"];
      expect(present.filter(Boolean)).toEqual(comparedFields(row, dtype === "u8"));
    }
    expect(Object.values(row.facts).every((fact) => fact.length > 0)).toBe(true);
  });

  it("are reproduced to the bit by a model of each package", () => {
    expect(
      cases.filter(({ model, raises }) => model !== "exact" && raises === undefined).map(nameOf),
    ).toEqual([]);
  });

  it("can be repeated: their inputs are drawn again to the bit", () => {
    const inputs = new Map(cases.map((row) => [JSON.stringify([row.case, row.dtype, row.shape]), row]));
    const mismatches = [...inputs.values()].filter(
      (row) => sha256(bytesOf(drawValues(row.case, row.dtype, row.shape))) !== row.inputs,
    );
    expect(mismatches.map(nameOf)).toEqual([]);
    for (const row of cases)
      expect(row.inputs).toBe(inputs.get(JSON.stringify([row.case, row.dtype, row.shape]))?.inputs);
  });

  it("keep bytes that agree with their hashes", () => {
    for (const row of cases)
      for (const [name, result] of Object.entries(row.results ?? {})) {
        const { rows, rowBytes } = rowsOf(result);
        const recordedSubset = recordedRows(row.from, result);
        expect(recordedSubset.length, `${nameOf(row)} ${name}`).toBe(
          Math.ceil(rows / result.everyRow) * rowBytes,
        );
        if (result.everyRow === 1)
          expect(sha256(recordedSubset), `${nameOf(row)} ${name}`).toBe(result.sha256);
        else expect(["codes", "values"], nameOf(row)).toContain(name);
      }
  });

  it("show where a result differs", () => {
    const allResults = cases.flatMap(({ from, results }) =>
      Object.values(results ?? {})
        .filter(({ everyRow, shape }) => everyRow === 1 && (shape[0] ?? 0) > 64)
        .map((result) => ({ from, result })),
    );
    expect(allResults.length).toBeGreaterThan(100);
    for (const { from, result } of allResults) {
      const bytes = recordedRows(from, result);
      expect(difference(from, result, bytes)).toBeUndefined();
      const { rows, rowBytes } = rowsOf(result);
      const offset = (rows - 2) * rowBytes;
      bytes[offset] = (bytes[offset] as number) ^ 1;
      expect(difference(from, result, bytes)).toContain(`row ${rows - 2}, element 0: `);
      // the row was not stored: the checksums of runs still find it
      const sparse = { ...result, everyRow: rows, rows: result.rows };
      const begin = Math.floor((rows - 2) / result.rowsPerRun) * result.rowsPerRun;
      expect(difference(from, sparse, bytes)).toContain(`rows ${begin} to `);
      expect(difference(from, result, bytes.subarray(ELEMENT_BYTES[result.type]))).toContain("bytes, of");
    }
  });
});
