/** What each code becomes in a wide type under a scale, in tables of the kernels. */
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
