/** Calls the WebAssembly exports of GEMM kernels directly, and computes the same product with the oracle. */

import { type Instance, openInstance } from "../../../src/backends/wasm/instance.js";
import { GEMM_TASK, KERNEL, PROMOTION, STAGING } from "../../../src/formats/contract.gen.js";
import {
  DATAPATHS,
  type DatapathName,
  type DotAdd,
  type StagingName,
} from "../../../src/formats/datapath.js";
import { factsOf } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "../../../src/formats/scalar.js";
import { bitsOf, fromBits } from "../../oracle/core/rational.js";
import { decode } from "../../oracle/core/scalar.js";
import { gemm, type OracleOperand, type OracleTask } from "../../oracle/gemm/gemm.js";

/** One scale for each `block` elements of each `1 << rowShift` lines. `ue4m3` is e4m3 without its sign. */
export interface BlockScales {
  readonly format: "f32" | "e8m0" | "ue4m3";
  readonly block: number;
  readonly rowShift: number;
  /** The codes of the scales, [ceil(lines / 2^rowShift)][ceil(K / block)]; for f32 scales, their bit patterns. */
  readonly codes: readonly (readonly number[])[];
}

export interface Codes {
  readonly format: ScalarFormat | "f32";
  /** One line of K codes for each row. */
  readonly lines: readonly (readonly number[])[];
  readonly scales?: BlockScales | undefined;
}

export interface KernelTask {
  readonly x: Codes;
  readonly w: Codes;
  readonly depth: number;
  readonly datapath: DatapathName;
  readonly kernel: keyof typeof KERNEL;
  readonly staging?: StagingName;
  readonly promotion?: keyof typeof PROMOTION;
  readonly splits?: number;
  /** The positions, as fractions, at which the units of work are divided among calls. */
  readonly cuts?: readonly number[];
  /** Overrides fields of the datapath's row, for negative controls. */
  readonly broken?: Partial<DotAdd>;
}

const UE4M3: ScalarLayout = { ...SCALAR_FORMATS.e4m3, signed: false };
const UE4M3_WORD = (factsOf("e4m3").word & ~(1 << 8)) >>> 0;
const UNSCALED = { promotion: "none", staging: "plain", splits: 1 } as const;

let opened: Promise<Instance> | undefined;

/** The exports of the reference; each test file instantiates them once. */
export function kernels(): Promise<Instance> {
  opened ??= openInstance();
  return opened;
}

function storageBits(format: Codes["format"]): number {
  return format === "f32" ? 32 : factsOf(format).storageBits;
}

/** Lines of codes as bytes, row by row. */
function bytesOf({ format, lines }: Codes): Uint8Array {
  const bits = storageBits(format);
  return Uint8Array.from(
    lines.flatMap((line) => {
      if (bits === 4) {
        return Array.from(
          { length: Math.ceil(line.length / 2) },
          (_, i) => (line[2 * i] ?? 0) | ((line[2 * i + 1] ?? 0) << 4),
        );
      }
      return line.flatMap((code) => Array.from({ length: bits / 8 }, (_, i) => (code >>> (8 * i)) & 255));
    }),
  );
}

function scaleBytes({ format, codes }: BlockScales): Uint8Array {
  const flat = codes.flat();
  return format === "f32" ? new Uint8Array(Uint32Array.from(flat).buffer) : Uint8Array.from(flat);
}

/** Runs `body` with an allocator. Its memory is freed when `body` returns. */
export function withMemory<T>(
  { exports, memory }: Instance,
  body: (place: (bytes: Uint8Array) => number) => T,
): T {
  const taken: number[] = [];
  try {
    return body((bytes) => {
      const address = exports.reserve(Math.max(16, bytes.length)) >>> 0;
      taken.push(address);
      new Uint8Array(memory.buffer, address, bytes.length).set(bytes);
      return address;
    });
  } finally {
    for (const address of taken) exports.release(address);
  }
}

/** Runs the kernel; returns D as f32 bit patterns, row by row. */
export function runKernel(instance: Instance, task: KernelTask): Uint32Array {
  const { exports, memory } = instance;
  const { x, w, depth, kernel, cuts = [], promotion, staging, splits } = { ...UNSCALED, ...task };
  const row = DATAPATHS[task.datapath];
  const rule: DotAdd = { ...dotAddOf(task.datapath), ...task.broken };
  const [rows, columns] = [x.lines.length, w.lines.length];
  return withMemory(instance, (place) => {
    const record = place(new Uint8Array(GEMM_TASK.bytes));
    const output = place(new Uint8Array(rows * columns * 4));
    exports.gemmShape(record, rows, columns, depth, output);
    const zero = rule.zeroOperand === "none" ? GEMM_TASK.noExponent : rule.zeroOperand;
    const { step, alignBits, fractionBits, zeroAccumulator, group } = rule;
    exports.gemmDatapath(record, KERNEL[kernel], step, alignBits, fractionBits, zero, zeroAccumulator, group);
    const interval = promotion === "none" ? 0 : row.promotionInterval;
    exports.gemmReduction(record, PROMOTION[promotion], interval, splits, row.splitTile);
    for (const [i, codes] of [x, w].entries()) {
      const word = codes.format === "f32" ? 0 : factsOf(codes.format).word;
      exports.gemmOperand(
        record,
        i,
        place(bytesOf(codes)),
        storageBits(codes.format),
        word,
        STAGING[staging],
      );
      if (!codes.scales) continue;
      const { format, block, rowShift } = codes.scales;
      const scaleWord = { f32: 0, e8m0: factsOf("e8m0").word, ue4m3: UE4M3_WORD }[format];
      const stride = Math.ceil(depth / block);
      exports.gemmScale(record, i, place(scaleBytes(codes.scales)), scaleWord, block, rowShift, stride, 1);
    }
    const scratch = place(new Uint8Array(exports.gemmScratch(record)));
    const units = exports.gemmUnits(record);
    const edges = [0, ...cuts.map((cut) => Math.floor(cut * units)).sort((a, b) => a - b), units];
    edges.slice(1).forEach((end, i) => {
      exports.gemm(record, scratch, edges[i] as number, end);
    });
    return new Uint32Array(memory.buffer.slice(output, output + rows * columns * 4));
  });
}

function dotAddOf(name: DatapathName): DotAdd {
  const row = DATAPATHS[name];
  return "dotAdd" in row
    ? row.dotAdd
    : { step: 0, alignBits: 0, fractionBits: 0, zeroOperand: 0, zeroAccumulator: 0, group: 1 };
}

function oracleOperand({ format, lines, scales }: Codes): OracleOperand {
  const layout = format === "f32" ? undefined : SCALAR_FORMATS[format];
  const scaleLayout = scales?.format === "e8m0" ? SCALAR_FORMATS.e8m0 : UE4M3;
  return {
    lines: lines.map((line) => line.map((code) => (layout ? decode(code, layout) : fromBits(code)))),
    minExponent: layout ? 1 - layout.bias : -126,
    scaleMinExponent: scales?.format === "e8m0" || scales?.format === "f32" ? -127 : -6,
    scale:
      scales &&
      ((line, k) => {
        const code = scales.codes[line >> scales.rowShift]?.[Math.floor(k / scales.block)] as number;
        return scales.format === "f32" ? fromBits(code) : decode(code, scaleLayout);
      }),
  };
}

/** The oracle's result of the same task as f32 bit patterns; NaN as 0x7FFFFFFF. */
export function runOracle(task: KernelTask): Uint32Array {
  const { promotion, staging, splits } = { ...UNSCALED, ...task };
  const row = DATAPATHS[task.datapath];
  const oracle: OracleTask = {
    x: oracleOperand(task.x),
    w: oracleOperand(task.w),
    rule: task.datapath === "exact" || task.datapath === "fp32" ? task.datapath : dotAddOf(task.datapath),
    staging,
    promotion,
    interval: row.promotionInterval,
    splits,
    splitTile: row.splitTile,
  };
  return Uint32Array.from(gemm(oracle).flat(), (value) => (Number.isNaN(value) ? 0x7fffffff : bitsOf(value)));
}
