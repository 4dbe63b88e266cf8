/** Tables for the kernels: the values of codes, and the wide value of each code times a scale. */
import { CODE_TYPES, type CodeTypeName } from "../stored/code-types.js";
import type { Kernels } from "./kernels.js";

/** The bytes of a table of assembly/checkpoints/wide-table.ts. */
const STRIDE = 1184;

/** Tables of one kind of code, one for each scale. */
export class CodeTables {
  readonly address: number;
  readonly stride = STRIDE;
  /** The number of codes. */
  readonly codes: number;
  readonly #values: number;

  constructor(
    private readonly kernels: Kernels,
    type: CodeTypeName,
    count: number,
  ) {
    const { values } = CODE_TYPES[type];
    this.codes = values.length;
    this.address = kernels.buffer("tables", count * STRIDE).address;
    this.#values = kernels.put(`values of ${type}`, values);
  }

  /** Fills a table with each code times a scale, rounded to a wide type. Returns whether rounding changes a value. */
  widen(index: number, scale: number, type: number): boolean {
    const table = this.address + index * STRIDE;
    return (
      this.kernels.call("wideTable", { values: this.#values, count: this.codes, scale, type, table }) !== 0
    );
  }
}

const SINGLE = new Map<CodeTypeName, Float32Array>();
const PAIRS = new Map<CodeTypeName, Float32Array>();

/** The f32 value of each byte with one code, exactly. */
export function singleTable(type: CodeTypeName): Float32Array {
  const cached = SINGLE.get(type);
  if (cached) return cached;
  const { values } = CODE_TYPES[type];
  const table = Float32Array.from({ length: 256 }, (_, code) => values[code] ?? 0);
  SINGLE.set(type, table);
  return table;
}

/** The f32 values of the two codes of each byte, the low half first. */
export function pairTable(type: CodeTypeName): Float32Array {
  const cached = PAIRS.get(type);
  if (cached) return cached;
  const { values } = CODE_TYPES[type];
  const table = Float32Array.from({ length: 512 }, (_, i) => {
    const byte = i >>> 1;
    return values[i & 1 ? byte >>> 4 : byte & 15] ?? 0;
  });
  PAIRS.set(type, table);
  return table;
}
