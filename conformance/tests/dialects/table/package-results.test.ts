/**
 * Every dialect returns the codes, scales and values that its package returned on a CPU, in every bit, for all recorded finite
 * inputs.
 */
import { describe, expect, it } from "vitest";
import { dequantizeAs } from "../../../../src/dialects/dequantize.js";
import { quantizerOf } from "../../../../src/dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectName } from "../../../../src/dialects/table.js";
import { isUndecided } from "../../../../src/dialects/undecided.js";
import { blockFormat, isTensorWide, type Tile, tileSize } from "../../../../src/formats/block.js";
import type { ScalarFormat } from "../../../../src/formats/scalar.js";
import { castTo } from "../../../../src/ops/cast/cast.js";
import { fromBytes, tensor } from "../../../../src/ops/create.js";
import type { Quantizer } from "../../../../src/quantizers/quantizer.js";
import { QuantizedTensor } from "../../../../src/tensor/quantized.js";
import { Scope } from "../../../../src/tensor/scope.js";
import type { Tensor } from "../../../../src/tensor/tensor.js";
import { SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { sampleCases } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";
import { drawValues } from "../../witness/dialects/draws.js";
import {
  difference,
  type RecordedCase,
  type RecordedResult,
  recordedPackages,
  rowsOf,
} from "../../witness/dialects/recorded.js";

/** The dialect of this library that corresponds to a recorded dialect, and the exceptions from the comparison. */
interface Comparison {
  readonly dialect: DialectName;
  readonly format?: ScalarFormat;
  readonly tile?: Tile;
  /** The block size, if the package stores the second half of a block (instead of odd elements) in the high nibbles. */
  readonly byHalves?: 16 | 32;
  /** How the package packs 4-bit codes, if not two of a row to a byte: eight in a word, each plus 8, or two rows to a byte. */
  readonly packs?: "words plus 8" | "pairs of rows";
}

const MODES = ["floor", "rceil", "ceil", "even"] as const;

const COMPARISONS: Readonly<Record<string, Comparison>> = {
  ...Object.fromEntries(
    MODES.flatMap((mode): [string, Comparison][] => [
      [`torchao-mxfp8-${mode}`, { dialect: `torchao-mxfp8-${mode}` }],
      [`torchao-mxfp8-e5m2-${mode}`, { dialect: `torchao-mxfp8-${mode}`, format: "e5m2" }],
      [`torchao-mxfp6-e2m3-${mode}`, { dialect: `torchao-mxfp6-${mode}` }],
      [`torchao-mxfp6-e3m2-${mode}`, { dialect: `torchao-mxfp6-${mode}`, format: "e3m2" }],
      [`torchao-mxfp4-${mode}`, { dialect: `torchao-mxfp4-${mode}` }],
    ]),
  ),
  "torchao-fp8-tensor": { dialect: "torchao-fp8-tensor" },
  "torchao-nvfp4": { dialect: "torchao-nvfp4" },
  "torchao-nvfp4-two-level": { dialect: "torchao-nvfp4-two-level" },
  "ct-nvfp4": { dialect: "ct-nvfp4" },
  "modelopt-nvfp4": { dialect: "modelopt-nvfp4" },
  "modelopt-mxfp4": { dialect: "modelopt-mxfp4" },
  "deepseek-mxfp4": { dialect: "deepseek-mxfp4" },
  "gguf-mxfp4": { dialect: "gguf-mxfp4", byHalves: 32 },
  "ggml-nvfp4": { dialect: "gguf-nvfp4", byHalves: 16 },
  "quark-amdfp4": { dialect: "quark-amdfp4" },
  "triton-mxfp4": { dialect: "gptoss-mxfp4" },
  "triton-mxfp8": { dialect: "triton-mxfp8" },
  "triton-mxfp8-e5m2": { dialect: "triton-mxfp8", format: "e5m2" },
  "torchao-fp8-row": { dialect: "torchao-fp8-row" },
  "ct-fp8-channel": { dialect: "ct-fp8-channel" },
  "fbgemm-fp8": { dialect: "fbgemm-fp8" },
  "fbgemm-fp8-ub1200": { dialect: "fbgemm-fp8-ub1200" },
  "ct-int8-channel": { dialect: "ct-int8-channel" },
  "modelopt-int8-row": { dialect: "modelopt-int8-row" },
  "ct-int4-group": { dialect: "ct-int4-group", packs: "words plus 8" },
  "modelopt-int4-block": { dialect: "modelopt-int4-block", packs: "pairs of rows" },
  "ct-fp8-tensor": { dialect: "ct-fp8-tensor" },
  "ct-fp8-block": { dialect: "ct-fp8-block" },
  "ct-mxfp8": { dialect: "ct-mxfp8" },
  "ct-mxfp6": { dialect: "ct-mxfp6" },
  "ct-mxfp4": { dialect: "ct-mxfp4" },
  "modelopt-fp8": { dialect: "modelopt-fp8" },
  "modelopt-fp8-block": { dialect: "modelopt-fp8-block" },
  "modelopt-mxfp8": { dialect: "modelopt-mxfp8" },
  "deepseek-fp8-block": { dialect: "deepseek-fp8-block" },
  "deepseek-fp8-token": { dialect: "deepseek-fp8-block", tile: "1x128" },
  "deepseek-ue8m0": { dialect: "deepseek-ue8m0" },
  "deepseek-ue8m0-token": { dialect: "deepseek-ue8m0", tile: "1x128" },
  "transformers-fp8-block": { dialect: "transformers-fp8-block" },
  "fbgemm-fp8-block": { dialect: "fbgemm-fp8-block" },
};

const NOT_FINITE = ["nan", "infinity"] as const;
/** Stored blocks that the package only read. */
const STORED = "bytes";
/** Cases whose inputs are not finite numbers. */
const UNUSUAL: readonly string[] = [...NOT_FINITE, STORED];
const LAYOUT = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;
const backend = useBackend({ threads: 1 });
const recordedDialects = recordedPackages().flatMap((from) => from.dialects.map((row) => ({ from, ...row })));

type Results = Readonly<Record<"codes" | "scale" | "values", Tensor>> & {
  readonly tensorScale?: Tensor | undefined;
};

/** The packages' names for the tensor scale. */
const OF_TENSOR = ["per_tensor_scale", "weight_global_scale", "weight_scale_2"];

/** Converts a result of the package to this library's type: bf16 results are f32 here, with the same significant bits. */
const bytesOf = (x: Uint8Array | Uint16Array | Uint32Array | Float32Array): Uint8Array =>
  new Uint8Array(x.buffer, x.byteOffset, x.byteLength);

function canonical(bytes: Uint8Array, type: RecordedResult["type"]): Uint8Array {
  if (type === "e4m3") return bytes.map((code) => ((code & 0x7f) === 0x7f ? 0x7f : code));
  if (type === "e5m2") return bytes.map((code) => ((code & 0x7f) > 0x7c ? 0x7f : code));
  if (type === "f32") {
    const bits = new Uint32Array(bytes.slice().buffer);
    return bytesOf(bits.map((word) => ((word & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : word)));
  }
  if (type !== "bf16") return bytes;
  const halves = new Uint16Array(bytes.slice().buffer);
  return bytesOf(halves.map((bits) => ((bits & 0x7fff) > 0x7f80 ? 0x7fc0 : bits)));
}

/** Four codes of six bits in three bytes, the first code lowest. */
function packSix(codes: Uint8Array): Uint8Array {
  const out = new Uint8Array((codes.length / 4) * 3);
  codes.forEach((code, i) => {
    const offset = i * 6;
    const word = code << (offset & 7);
    out[offset >> 3] = (out[offset >> 3] as number) | (word & 0xff);
    if ((offset & 7) > 2) out[(offset >> 3) + 1] = (out[(offset >> 3) + 1] as number) | (word >> 8);
  });
  return out;
}

/** Converts bytes whose low nibbles are even elements of blocks of `size` to bytes whose low nibbles are the first half. */
function fromHalves(packed: Uint8Array, size: number): Uint8Array {
  const halfSize = size / 2;
  const code = (i: number): number => ((packed[i >> 1] as number) >> ((i & 1) * 4)) & 15;
  return packed.map((_, index) => {
    const [block, j] = [Math.floor(index / halfSize) * size, index % halfSize];
    return code(block + j) | (code(block + halfSize + j) << 4);
  });
}

/** Converts bytes with two codes of one of `rows` rows to bytes with codes of two rows, the even row in the low nibble. */
function packByRows(packed: Uint8Array, rows: number): Uint8Array {
  const pitch = packed.length / rows;
  const code = (row: number, column: number): number =>
    ((packed[row * pitch + (column >> 1)] as number) >> ((column & 1) * 4)) & 15;
  return Uint8Array.from({ length: packed.length }, (_, index) => {
    const [pair, column] = [Math.floor(index / (2 * pitch)), index % (2 * pitch)];
    return code(2 * pair, column) | (code(2 * pair + 1, column) << 4);
  });
}

/** The bytes of a result; f32 is converted to the recorded type if that is shorter. */
function asType(x: Tensor, { type, shape }: RecordedResult): Uint8Array {
  const bytes = bytesOf(x.dataSync() as Uint8Array);
  if (x.dtype === "f32" && type === "bf16")
    return canonical(
      bytesOf(Uint16Array.from(new Uint32Array(bytes.slice().buffer), (word) => word >>> 16)),
      type,
    );
  if (x.dtype === "e8m0" && type === "f32")
    return bytesOf(Float32Array.from(bytes, (code) => 2 ** (code - 127)));
  if (type === "u8" && x.dtype === "e2m3" && (shape[1] as number) % 3 === 0) return packSix(bytes);
  return canonical(bytes, type);
}

function run(quantizer: Quantizer, source: Tensor, dialect: DialectName): Results {
  const quantizedTensor = quantizer.quantize(source);
  const copy = quantizedTensor.rowwise;
  if (!copy) throw new Error("no rowwise copy");
  return {
    codes: copy.data,
    scale: copy.scaleInv,
    tensorScale: copy.amax,
    values: dequantizeAs(quantizedTensor, { dialect }),
  };
}

/** The codes as the package packs them. `storedBytes` returns the recorded rows and columns of a result. */
function packedBy(
  { byHalves: size, packs }: Comparison,
  storedBytes: (x: Tensor, result: RecordedResult) => Uint8Array,
  codes: Tensor,
  recordedResult: RecordedResult,
): Uint8Array {
  if (size) return fromHalves(storedBytes(codes, recordedResult), size);
  // integers are stored plus 8, which flips their highest bit
  if (packs === "words plus 8") return storedBytes(codes, recordedResult).map((byte) => byte ^ 0x88);
  if (packs !== "pairs of rows") return storedBytes(codes, recordedResult);
  const { rows, rowBytes } = rowsOf(recordedResult);
  const paddedRows = packByRows(bytesOf(codes.dataSync() as Uint8Array), codes.shape[0] as number);
  const pitch = codes.shape[1] as number;
  return Buffer.concat(
    Array.from({ length: rows }, (_, row) => paddedRows.subarray(row * pitch, row * pitch + rowBytes)),
  );
}

/** The differences of one case from its record, by result. */
function differences(
  recordedCase: RecordedCase,
  comparison: Comparison,
  from: (typeof recordedDialects)[number]["from"],
): Record<string, string> {
  using _scope = new Scope();
  const [rows, columns] = recordedCase.shape;
  const patterns = drawValues(recordedCase.case, recordedCase.dtype, recordedCase.shape);
  const { forms, undecided }: Dialect = DIALECTS[comparison.dialect];
  const quantizerName = forms[0]?.quantizer ?? "mxfp8";
  const { codes, values, ...scales } = recordedCase.results ?? {};
  const scale = Object.entries(scales).find(([name]) => !OF_TENSOR.includes(name))?.[1];
  const tensorScale = Object.entries(scales).find(([name]) => OF_TENSOR.includes(name))?.[1];
  if (!codes || !scale) throw new Error("no codes or no scale were recorded");
  const reference = quantizerOf({
    dialect: comparison.dialect,
    format: comparison.format,
    tile: comparison.tile,
  });
  // the 128-wide sweeps were recorded in blocks of 32, which padding with zeros does not change
  const narrow =
    recordedCase.options !== undefined && columns === 32 && tileSize(reference.spec.tile)[1] === 128;
  const tile =
    blockFormat(quantizerName).tiles.find((candidate) => tileSize(candidate).join() === "1,32") ?? "1x128";
  const quantizer = narrow ? new SpecQuantizer({ ...reference.spec, tile }, LAYOUT) : reference;
  const { multiple } = blockFormat(quantizerName);
  const size = [
    Math.ceil(rows / multiple) * multiple,
    narrow ? tileSize(tile)[1] : Math.ceil(columns / multiple) * multiple,
  ] as const;
  const resultOf = (
    bits: Uint8Array | Uint16Array | Uint32Array,
    [scaleRows, scaleColumns]: readonly [number, number],
  ): Tensor => {
    const paddedScales =
      recordedCase.dtype === "f32"
        ? new Uint32Array(scaleRows * scaleColumns)
        : new Uint16Array(scaleRows * scaleColumns);
    for (let row = 0; row * columns < bits.length; row++)
      paddedScales.set(bits.subarray(row * columns, (row + 1) * columns), row * scaleColumns);
    if (paddedScales instanceof Uint16Array)
      return tensor(backend(), paddedScales, [scaleRows, scaleColumns], "bf16");
    return tensor(backend(), new Float32Array(paddedScales.buffer), [scaleRows, scaleColumns], "f32");
  };
  const outcome: Record<string, string> = {};
  const wholes: number[] = [];
  const amaxOf = (row: number): number => {
    const line = patterns.subarray(row * columns, (row + 1) * columns);
    const bits = Uint32Array.from(
      line,
      (bits) => (recordedCase.dtype === "f32" ? bits : bits << 16) & 0x7fffffff,
    );
    return new Float32Array(bits.buffer).reduce((a, b) => Math.max(a, b), 0);
  };
  const isNotHeld = (row: number): boolean =>
    undecided !== undefined &&
    isUndecided(undecided, wholes[wholes.length === 1 ? 0 : row] ?? 1, amaxOf(row));
  const note = (name: string, result: RecordedResult | undefined, bytes: Uint8Array): void => {
    const isComputed = name === "codes" || name === "values";
    const mismatch = result && difference(from, result, bytes, isComputed ? isNotHeld : undefined);
    if (mismatch) outcome[name] = mismatch;
  };
  if (recordedCase.tensors === "rows" && (isTensorWide(quantizer.spec.tile) || tensorScale)) {
    const rowResults: Record<"codes" | "scale" | "values" | "whole", Uint8Array[]> = {
      codes: [],
      scale: [],
      values: [],
      whole: [],
    };
    const row = (x: Tensor, result: RecordedResult): Uint8Array =>
      asType(x, result).slice(0, rowsOf(result).rowBytes);
    for (let rowIndex = 0; rowIndex < rows; rowIndex++) {
      using _row = new Scope();
      const line = resultOf(patterns.subarray(rowIndex * columns, (rowIndex + 1) * columns), [
        multiple,
        columns,
      ]);
      const result = run(quantizer, line, comparison.dialect);
      if (result.tensorScale) wholes.push(Number(result.tensorScale.dataSync()[0]));
      rowResults.codes.push(row(result.codes, codes));
      rowResults.scale.push(row(result.scale, scale));
      if (values) rowResults.values.push(row(result.values, values));
      if (tensorScale && result.tensorScale) rowResults.whole.push(row(result.tensorScale, tensorScale));
    }
    note("codes", codes, Buffer.concat(rowResults.codes));
    note("scale", scale, Buffer.concat(rowResults.scale));
    note("values", values, Buffer.concat(rowResults.values));
    note("whole", tensorScale, Buffer.concat(rowResults.whole));
    return outcome;
  }
  const results = run(quantizer, resultOf(patterns, size), comparison.dialect);
  if (results.tensorScale) wholes.push(Number(results.tensorScale.dataSync()[0]));
  const storedRows = (x: Tensor, result: RecordedResult): Uint8Array => {
    const bytes = asType(x, result);
    const [lines = 1] = x.shape;
    const { rows: expectedRows, rowBytes } = rowsOf(result);
    const pitch = bytes.length / lines;
    return Buffer.concat(
      Array.from({ length: Math.min(expectedRows, lines) }, (_, row) =>
        bytes.subarray(row * pitch, row * pitch + rowBytes),
      ),
    );
  };
  note("codes", codes, packedBy(comparison, storedRows, results.codes, codes));
  note("scale", scale, storedRows(results.scale, scale));
  if (values) note("values", values, storedRows(results.values, values));
  if (tensorScale && results.tensorScale)
    note("whole", tensorScale, asType(results.tensorScale, tensorScale));
  return outcome;
}

describe.each(sampleCases(Object.entries(COMPARISONS), 20))("%s", (name, comparison) => {
  const row = recordedDialects.find(({ dialect }) => dialect === name);

  it("equals the result of the package, for finite inputs", () => {
    expect(row, name).toBeDefined();
    if (!row) return;
    const finiteCases = row.cases.filter(
      (testCase) => !UNUSUAL.includes(testCase.case) && testCase.results !== undefined,
    );
    const mismatches = sampleCases(finiteCases, 1).flatMap((recordedCase) => {
      const mismatchesOfCase = differences(recordedCase, comparison, row.from);
      return Object.entries(mismatchesOfCase).map(
        ([result, what]) => `${recordedCase.case} ${recordedCase.dtype} ${result}: ${what}`,
      );
    });
    expect(mismatches).toEqual([]);
  });
});

describe.each(
  DIALECT_NAMES.filter((name) => Object.values(COMPARISONS).some(({ dialect }) => dialect === name)),
)("the row of %s", (name) => {
  const rows = Object.entries(COMPARISONS).filter(([, { dialect }]) => dialect === name);
  const { nonFinite = {} }: Dialect = DIALECTS[name];

  it.each(sampleCases(NOT_FINITE, 1, DIALECT_NAMES.indexOf(name)))(
    "says what the package does with %s exactly where it is not ours",
    (kind) => {
      const cases = rows.flatMap(([row, comparison]) => {
        const recordedDialect = recordedDialects.find(({ dialect }) => dialect === row);
        if (!recordedDialect) throw new Error(`${row} is not recorded`);
        const cases = recordedDialect.cases.filter(
          (testCase) => testCase.case === kind && testCase.results !== undefined,
        );
        return cases.map(
          (testCase) => Object.keys(differences(testCase, comparison, recordedDialect.from)).length > 0,
        );
      });
      const words = nonFinite[kind];
      if (cases.length === 0) expect(words).toBe("not recorded");
      else expect(words !== undefined).toBe(cases.includes(true));
    },
  );
});

/** The nibble of element i of a block. Nibble n is in byte n / 2, rounded down. */
type NibbleOf = (i: number) => number;

/** Packages that read stored blocks of 17 bytes with the scale first. */
const READERS: readonly (readonly [DialectName, NibbleOf])[] = [
  ["gguf-mxfp4", (i) => (i % 16) * 2 + (i >> 4)],
  ["gptoss-mxfp4", (i) => i],
];

it.each(READERS)(
  "%s reads stored blocks as the package does: every byte of scales, also 255, with every code",
  (dialect, nibbleOf) => {
    using _scope = new Scope();
    const from = recordedDialects.find((recordedDialect) => recordedDialect.dialect === dialect);
    const storedCase = from?.cases.find((testCase) => testCase.case === STORED);
    const { values } = storedCase?.results ?? {};
    if (!from || !storedCase || !values) throw new Error("values of stored blocks are recorded");
    const [rows, bytes] = storedCase.shape;
    const storedBytes = drawValues(storedCase.case, storedCase.dtype, storedCase.shape) as Uint8Array;
    const blocks = (rows * bytes) / 17;
    const [codes, scales] = [new Uint8Array(blocks * 16), new Uint8Array(blocks)];
    for (let block = 0; block < blocks; block++) {
      scales[block] = storedBytes[block * 17] as number;
      for (let i = 0; i < 32; i++) {
        const nibble = nibbleOf(i);
        const byte = storedBytes[block * 17 + 1 + (nibble >> 1)] as number;
        const byteIndex = block * 16 + (i >> 1);
        codes[byteIndex] =
          (codes[byteIndex] as number) | (((byte >> ((nibble & 1) * 4)) & 15) << ((i & 1) * 4));
      }
    }
    expect(new Set(scales).size).toBe(256);
    const columns = (blocks / rows) * 32;
    const quantizer = quantizerOf({ dialect });
    const quantizedTensor = quantizer.quantize(
      tensor(backend(), new Float32Array(rows * columns), [rows, columns]),
    );
    const { data, scaleInv } = quantizedTensor.copy("rowwise");
    const tensorFrom = (x: Tensor, bytes: Uint8Array) => fromBytes(backend(), bytes, x.shape, x.dtype);
    const copy = { data: tensorFrom(data, codes), scaleInv: tensorFrom(scaleInv, scales) };
    const { spec, shape, dtype, scaleLayout, quantizer: ops } = quantizedTensor;
    const readTensor = new QuantizedTensor({ spec, shape, dtype, scaleLayout, ops, rowwise: copy });
    const expectedValues = dequantizeAs(readTensor, { dialect });
    const infinite = castTo(expectedValues, "f32").dataSync() as Float32Array;
    expect(infinite.some((value) => value === Number.POSITIVE_INFINITY)).toBe(true);
    expect(difference(from.from, values, asType(expectedValues, values))).toBeUndefined();
  },
);

describe("the table of dialects", () => {
  it("has a witness for each row", () => {
    const comparison = new Set(Object.values(COMPARISONS).map(({ dialect }) => dialect));
    // te: TransformerEngine's recordings; ocp: microxcaling.test.ts
    const testedElsewhere = ["te", "ocp-mxfp8", "ocp-mxfp6", "ocp-mxfp4", "ocp-mxint8"];
    expect([...comparison, ...testedElsewhere].sort()).toEqual([...DIALECT_NAMES].sort());
  });
});
