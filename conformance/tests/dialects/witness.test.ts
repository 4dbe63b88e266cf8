/**
 * Every dialect gives the codes, scales and values that its package gave on a CPU, in every bit, for all recorded inputs that are
 * finite.
 */
import { describe, expect, it } from "vitest";
import { quantizerOf } from "../../../src/dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectName } from "../../../src/dialects/table.js";
import { blockFormat, isTensorWide, type Tile, tileSize } from "../../../src/formats/block.js";
import type { ScalarFormat } from "../../../src/formats/scalar.js";
import { tensor } from "../../../src/ops/create.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { useBackend } from "../harness/suite.js";
import { drawn } from "../witness/dialects/draws.js";
import {
  difference,
  type RecordedCase,
  type RecordedResult,
  recordedPackages,
  rowsOf,
} from "../witness/dialects/recorded.js";

/** Which of our dialects a recorded one is, and what of it is not held to the record. */
interface Held {
  readonly dialect: DialectName;
  readonly format?: ScalarFormat;
  readonly tile?: Tile;
  /** Whether values are computed in another way: codes and scales are held alone. */
  readonly valuesDiffer?: string;
}

const MODES = ["floor", "rceil", "ceil", "even"] as const;

const HELD: Readonly<Record<string, Held>> = {
  ...Object.fromEntries(
    MODES.flatMap((mode): [string, Held][] => [
      [`torchao-mxfp8-${mode}`, { dialect: `torchao-mxfp8-${mode}` }],
      [`torchao-mxfp8-e5m2-${mode}`, { dialect: `torchao-mxfp8-${mode}`, format: "e5m2" }],
      [`torchao-mxfp6-e2m3-${mode}`, { dialect: `torchao-mxfp6-${mode}` }],
      [`torchao-mxfp6-e3m2-${mode}`, { dialect: `torchao-mxfp6-${mode}`, format: "e3m2" }],
      [`torchao-mxfp4-${mode}`, { dialect: `torchao-mxfp4-${mode}` }],
    ]),
  ),
  "torchao-fp8-tensor": { dialect: "torchao-fp8-tensor" },
  "ct-fp8-tensor": { dialect: "ct-fp8-tensor" },
  "ct-fp8-block": { dialect: "ct-fp8-block" },
  "ct-mxfp8": { dialect: "ct-mxfp8" },
  "ct-mxfp6": { dialect: "ct-mxfp6" },
  "ct-mxfp4": { dialect: "ct-mxfp4" },
  "modelopt-fp8": {
    dialect: "modelopt-fp8",
    valuesDiffer: "the scale is rounded to bf16 before it multiplies",
  },
  "modelopt-fp8-block": { dialect: "modelopt-fp8-block" },
  "modelopt-mxfp8": { dialect: "modelopt-mxfp8" },
  "deepseek-fp8-block": { dialect: "deepseek-fp8-block" },
  "deepseek-fp8-token": { dialect: "deepseek-fp8-block", tile: "1x128" },
  "deepseek-ue8m0": { dialect: "deepseek-ue8m0" },
  "deepseek-ue8m0-token": { dialect: "deepseek-ue8m0", tile: "1x128" },
  "transformers-fp8-block": { dialect: "transformers-fp8-block" },
  "fbgemm-fp8-block": { dialect: "fbgemm-fp8-block" },
};

const NOT_FINITE = ["nan", "infinity"];
const LAYOUT = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;
const backend = useBackend({ threads: 1 });
const recorded = recordedPackages().flatMap((from) => from.dialects.map((row) => ({ from, ...row })));

type Results = Readonly<Record<"codes" | "scale" | "values", Tensor>>;

/** A type of the package's results as ours: what it stores in bf16 is f32 here, with as many significant bits. */
const bytesOf = (x: Uint8Array | Uint16Array | Uint32Array | Float32Array): Uint8Array =>
  new Uint8Array(x.buffer, x.byteOffset, x.byteLength);

function canonical(bytes: Uint8Array, type: RecordedResult["type"]): Uint8Array {
  if (type === "e4m3") return bytes.map((code) => ((code & 0x7f) === 0x7f ? 0x7f : code));
  if (type === "e5m2") return bytes.map((code) => ((code & 0x7f) > 0x7c ? 0x7f : code));
  if (type === "f32") {
    const words = new Uint32Array(bytes.slice().buffer);
    return bytesOf(words.map((word) => ((word & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : word)));
  }
  if (type !== "bf16") return bytes;
  const halves = new Uint16Array(bytes.slice().buffer);
  return bytesOf(halves.map((half) => ((half & 0x7fff) > 0x7f80 ? 0x7fc0 : half)));
}

/** Four codes of six bits in three bytes, the first code lowest. */
function packSix(codes: Uint8Array): Uint8Array {
  const out = new Uint8Array((codes.length / 4) * 3);
  codes.forEach((code, i) => {
    const at = i * 6;
    const word = code << (at & 7);
    out[at >> 3] = (out[at >> 3] as number) | (word & 0xff);
    if ((at & 7) > 2) out[(at >> 3) + 1] = (out[(at >> 3) + 1] as number) | (word >> 8);
  });
  return out;
}

/** Bytes of a result, of f32 as the recorded type where that is shorter. */
function asType(x: Tensor, { type, shape }: RecordedResult): Uint8Array {
  const bytes = bytesOf(x.dataSync() as Uint8Array);
  if (x.dtype === "f32" && type === "bf16")
    return canonical(
      bytesOf(Uint16Array.from(new Uint32Array(bytes.slice().buffer), (word) => word >>> 16)),
      type,
    );
  if (type === "u8" && x.dtype === "e2m3" && (shape[1] as number) % 3 === 0) return packSix(bytes);
  return canonical(bytes, type);
}

function run(quantizer: Quantizer, source: Tensor, values: RecordedResult | undefined): Results {
  const made = quantizer.quantize(source);
  const copy = made.rowwise;
  if (!copy) throw new Error("no rowwise copy");
  const dtype = values?.type === "f32" ? "f32" : "bf16";
  return { codes: copy.data, scale: copy.scaleInv, values: quantizer.dequantize(made, dtype) };
}

/** The differences of one case from its record, by result. */
function differences(
  given: RecordedCase,
  held: Held,
  from: (typeof recorded)[number]["from"],
): Record<string, string> {
  using _scope = new Scope();
  const [rows, columns] = given.shape;
  const patterns = drawn(given.case, given.dtype, given.shape);
  const { forms }: Dialect = DIALECTS[held.dialect];
  const quantizerName = forms[0]?.quantizer ?? "mxfp8";
  const { codes, values, ...scales } = given.results ?? {};
  const [scale] = Object.values(scales);
  if (!codes || !scale) throw new Error("no codes or no scale were recorded");
  const made = quantizerOf({ dialect: held.dialect, format: held.format, tile: held.tile });
  // the sweeps of 128-wide blocks were asked in blocks of 32, which zeros behind them do not change
  const narrow = given.options !== undefined && columns === 32 && tileSize(made.spec.tile)[1] === 128;
  const quantizer = narrow ? new SpecQuantizer({ ...made.spec, tile: "1x128" }, LAYOUT) : made;
  const { multiple } = blockFormat(quantizerName);
  const size = [
    Math.ceil(rows / multiple) * multiple,
    narrow ? 128 : Math.ceil(columns / multiple) * multiple,
  ] as const;
  const of = (
    bits: Uint8Array | Uint16Array | Uint32Array,
    [down, across]: readonly [number, number],
  ): Tensor => {
    const whole = given.dtype === "f32" ? new Uint32Array(down * across) : new Uint16Array(down * across);
    for (let r = 0; r * columns < bits.length; r++)
      whole.set(bits.subarray(r * columns, (r + 1) * columns), r * across);
    if (whole instanceof Uint16Array) return tensor(backend(), whole, [down, across], "bf16");
    return tensor(backend(), new Float32Array(whole.buffer), [down, across], "f32");
  };
  const told: Record<string, string> = {};
  const note = (name: string, result: RecordedResult | undefined, bytes: Uint8Array): void => {
    const differing = result && difference(from, result, bytes);
    if (differing) told[name] = differing;
  };
  if (given.tensors === "rows" && isTensorWide(quantizer.spec.tile)) {
    const parts: Record<"codes" | "scale" | "values", Uint8Array[]> = { codes: [], scale: [], values: [] };
    for (let r = 0; r < rows; r++) {
      using _row = new Scope();
      const one = run(quantizer, of(patterns.subarray(r * columns, (r + 1) * columns), [1, columns]), values);
      parts.codes.push(asType(one.codes, codes).slice());
      parts.scale.push(asType(one.scale, scale).slice());
      if (values) parts.values.push(asType(one.values, values).slice());
    }
    note("codes", codes, Buffer.concat(parts.codes));
    note("scale", scale, Buffer.concat(parts.scale));
    note("values", values, Buffer.concat(parts.values));
    return told;
  }
  const results = run(quantizer, of(patterns, size), values);
  const cut = (x: Tensor, result: RecordedResult): Uint8Array => {
    const bytes = asType(x, result);
    const [lines = 1] = x.shape;
    const { rows: wanted, rowBytes } = rowsOf(result);
    const pitch = bytes.length / lines;
    return Buffer.concat(
      Array.from({ length: Math.min(wanted, lines) }, (_, r) =>
        bytes.subarray(r * pitch, r * pitch + rowBytes),
      ),
    );
  };
  note("codes", codes, cut(results.codes, codes));
  note("scale", scale, cut(results.scale, scale));
  if (values) note("values", values, cut(results.values, values));
  return told;
}

describe.each(Object.entries(HELD))("%s", (name, held) => {
  const row = recorded.find(({ dialect }) => dialect === name);

  it("is what the package gave, for finite inputs", () => {
    expect(row, name).toBeDefined();
    if (!row) return;
    const wrong = row.cases.flatMap((given) => {
      if (NOT_FINITE.includes(given.case) || given.results === undefined) return [];
      const { values, ...rest } = differences(given, held, row.from);
      const all = held.valuesDiffer === undefined && values ? { ...rest, values } : rest;
      return Object.entries(all).map(([result, what]) => `${given.case} ${given.dtype} ${result}: ${what}`);
    });
    expect(wrong).toEqual([]);
  });
});

describe("the table of dialects", () => {
  it("has a witness for each row", () => {
    const held = new Set(Object.values(HELD).map(({ dialect }) => dialect));
    const elsewhere = ["te", "ocp-mxfp8", "ocp-mxfp6", "ocp-mxfp4"];
    expect([...held, ...elsewhere].sort()).toEqual([...DIALECT_NAMES].sort());
  });
});
