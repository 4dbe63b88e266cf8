/** Counts how often each byte of codes occurs with each one-byte scale, so that each pair's change is computed once. */
import type { Kernels } from "../../kernels/kernels.js";
import { CODE_TYPES, type CodeTypeName } from "../../stored/code-types.js";
import type { Changes } from "../changes/changes.js";

const BYTES = 256;

/** The value of a code under a scale, before and after the conversion. */
export type Change = (scale: number, code: number) => readonly [before: number, after: number];

/** Counts for one weight with codes of eight or four bits. */
export class Occurrences {
  readonly #address: number;

  constructor(
    private readonly kernels: Kernels,
    private readonly type: CodeTypeName,
  ) {
    const { address, bytes } = kernels.buffer("occurrences", 4 * BYTES * BYTES);
    bytes.fill(0);
    this.#address = address;
  }

  /** Counts `groups` groups of `width` bytes of codes. The scale of group i is byte i of `scales`. */
  add(codes: number, groups: number, width: number, scales: number): void {
    this.kernels.call("countGroups", { codes, groups, width, scales, counts: this.#address });
  }

  /** Adds the changes of all counted elements to `changes`. */
  addTo(changes: Changes, change: Change): void {
    const pairs = CODE_TYPES[this.type].bits === 4;
    const counts = new Uint32Array(this.kernels.bytes(this.#address, 4 * BYTES * BYTES).slice().buffer);
    for (const [index, count] of counts.entries()) {
      if (count === 0) continue;
      const [scale, byte] = [index >>> 8, index & 255];
      if (!pairs) changes.add(...change(scale, byte), count);
      else {
        changes.add(...change(scale, byte & 15), count);
        changes.add(...change(scale, byte >>> 4), count);
      }
    }
  }
}
