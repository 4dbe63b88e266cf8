/** Counts how often each code occurs. */
import type { Kernels, Place } from "../../kernels/kernels.js";
import type { Codes } from "../../stored/code-rows.js";

/** Counts of codes. */
export class CodeCounts {
  readonly total: Float64Array;
  readonly #place: Place;

  constructor(
    private readonly kernels: Kernels,
    length: number,
  ) {
    this.total = new Float64Array(length);
    this.#place = kernels.place("counts", 4 * 4 * 256);
  }

  /** Counts bytes at an address. */
  add(codes: number, count: number): void {
    this.#place.bytes.fill(0);
    const counts = this.#place.address;
    this.kernels.call("countBlock", { codes, rows: 1, width: count, pitch: count, counts });
    const each = new Uint32Array(this.#place.bytes.slice().buffer);
    for (let i = 0; i < each.length; i++) this.#more(i & 255, each[i] as number);
  }

  /** Counts codes one by one. */
  addEach(codes: Codes): void {
    for (let i = 0; i < codes.length; i++) this.#more(codes[i] as number, 1);
  }

  #more(code: number, count: number): void {
    if (code < this.total.length) this.total[code] = (this.total[code] as number) + count;
  }
}
