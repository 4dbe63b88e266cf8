/** Counts how often each code occurs. */
import { countBytes } from "../../kernels/count-bytes.js";
import type { Kernels } from "../../kernels/kernels.js";
import type { Codes } from "../../stored/code-rows.js";

/** Counts of codes. */
export class CodeCounts {
  readonly total: Float64Array;

  constructor(
    private readonly kernels: Kernels,
    length: number,
  ) {
    this.total = new Float64Array(length);
  }

  /** Counts bytes at an address. */
  add(address: number, count: number): void {
    const counts = countBytes(this.kernels, { address, rows: 1, width: count, pitch: count });
    for (const [code, count] of counts.entries()) this.#more(code, count);
  }

  /** Counts codes one by one. */
  addEach(codes: Codes): void {
    for (let i = 0; i < codes.length; i++) this.#more(codes[i] as number, 1);
  }

  #more(code: number, count: number): void {
    if (code < this.total.length) this.total[code] = (this.total[code] as number) + count;
  }
}
