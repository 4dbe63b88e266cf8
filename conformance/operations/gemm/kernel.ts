/** Calls the WebAssembly exports of GEMM kernels directly, and computes the same product with the oracle. */

import { Heap } from "../../../src/backends/wasm/heap.js";
import { type Instance, openInstance } from "../../../src/backends/wasm/instance.js";
import { Pool } from "../../../src/backends/wasm/pool.js";
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

const NO_SCALES = { scale: 0, scaleWord: 0, block: 0, rowShift: 0, rowStride: 0, blockStride: 0 };

/** The reference, with a pool of one thread that calls its exports. */
export interface KernelInstance extends Instance {
  readonly pool: Pool;
}

/** The fields of an epilogue without line scales and amaxes. */
export const NO_LINES = {
  lineScaleW: 0,
  lineStrideW: 0,
  lineScaleX: 0,
  lineStrideX: 0,
  hasLineAmaxes: false,
  lineAmaxW: 0,
  lineAmaxStrideW: 0,
  lineAmaxX: 0,
  lineAmaxStrideX: 0,
} as const;

let opened: Promise<KernelInstance> | undefined;

async function open(): Promise<KernelInstance> {
  const instance = await openInstance();
  return { ...instance, pool: await Pool.open(instance, new Heap(instance), 1) };
}

/** The exports of the reference; each test file instantiates them once. */
export function kernels(): Promise<KernelInstance> {
  opened ??= open();
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
export function runKernel(instance: KernelInstance, task: KernelTask): Uint32Array {
  const { memory, pool } = instance;
  const { x, w, depth, kernel, cuts = [], promotion, staging, splits } = { ...UNSCALED, ...task };
  const row = DATAPATHS[task.datapath];
  const rule: DotAdd = { ...dotAddOf(task.datapath), ...task.broken };
  const [rows, columns] = [x.lines.length, w.lines.length];
  return withMemory(instance, (place) => {
    const output = place(new Uint8Array(rows * columns * 4));
    const operandOf = (codes: Codes) => {
      const word = codes.format === "f32" ? 0 : factsOf(codes.format).word;
      const operand = {
        data: place(bytesOf(codes)),
        width: storageBits(codes.format),
        word,
        staging: STAGING[staging],
      };
      if (!codes.scales) return { ...operand, ...NO_SCALES };
      const { format, block, rowShift } = codes.scales;
      const scaleWord = { f32: 0, e8m0: factsOf("e8m0").word, ue4m3: UE4M3_WORD }[format];
      const rowStride = Math.ceil(depth / block);
      const scale = place(scaleBytes(codes.scales));
      return { ...operand, scale, scaleWord, block, rowShift, rowStride, blockStride: 1 };
    };
    const { zeroOperand, ...dotAdd } = rule;
    const fields = {
      x: operandOf(x),
      w: operandOf(w),
      rows,
      columns,
      depth,
      output,
      kernel: KERNEL[kernel],
      ...dotAdd,
      zeroOperand: zeroOperand === "none" ? GEMM_TASK.noExponent : zeroOperand,
      promotion: PROMOTION[promotion],
      interval: promotion === "none" ? 0 : row.promotionInterval,
      splits,
      splitTile: row.splitTile,
    };
    const scratch = pool.call("gemmScratch", fields);
    const units = pool.call("gemmUnits", fields);
    const edges = [0, ...cuts.map((cut) => Math.floor(cut * units)).sort((a, b) => a - b), units];
    edges.slice(1).forEach((end, i) => {
      const first = edges[i] as number;
      pool.run("gemm", { first, total: end - first, scratch }, fields);
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
