/** Tables of the kernels: the values of codes, and the wide value of each code times a scale. */
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
    this.address = kernels.place("tables", count * STRIDE).address;
    this.#values = kernels.put(`values of ${type}`, values);
  }

  /** Fills a table with what codes times a scale are in a wide type. Returns whether a value changes. */
  widen(index: number, scale: number, type: number): boolean {
    const table = this.address + index * STRIDE;
    return (
      this.kernels.call("wideTable", { values: this.#values, count: this.codes, scale, type, table }) !== 0
    );
  }
}

const SINGLE = new Map<CodeTypeName, Float32Array>();
const PAIRS = new Map<CodeTypeName, Float32Array>();

/** The f32 value of each byte that has one code, which is exact. */
export function singleTable(type: CodeTypeName): Float32Array {
  const known = SINGLE.get(type);
  if (known) return known;
  const { values } = CODE_TYPES[type];
  const made = Float32Array.from({ length: 256 }, (_, code) => values[code] ?? 0);
  SINGLE.set(type, made);
  return made;
}

/** The f32 values of the two codes of each byte, the low half first. */
export function pairTable(type: CodeTypeName): Float32Array {
  const known = PAIRS.get(type);
  if (known) return known;
  const { values } = CODE_TYPES[type];
  const made = Float32Array.from({ length: 512 }, (_, i) => {
    const byte = i >>> 1;
    return values[i & 1 ? byte >>> 4 : byte & 15] ?? 0;
  });
  PAIRS.set(type, made);
  return made;
}
