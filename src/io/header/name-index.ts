/** Finding a name among a million that are held elsewhere: a hash table of their numbers alone. */
import { randomInt } from "node:crypto";

/** The largest prime below 2^26: a product of two residues, plus a code unit, is exact in a double. */
const PRIME = 67_108_859;
const GOLDEN_RATIO = 0x9e3779b1;

/**
 * Numbers of names, by name. The hash is a polynomial in a random number, which the author of a file does not know: two names of
 * n characters have one hash with a probability of n in 2^26, whatever they are. What is found does not depend on it.
 */
export class NameIndex {
  /** A number and 1, or 0 where there is none. */
  readonly #slots: Uint32Array;
  readonly #shift: number;
  readonly #at = randomInt(1, PRIME);

  /** For that many names; `nameOf` gives the name of a number. */
  constructor(
    count: number,
    private readonly nameOf: (index: number) => string,
  ) {
    const bits = Math.max(1, Math.ceil(Math.log2(count + 1)) + 1);
    this.#slots = new Uint32Array(2 ** bits);
    this.#shift = 32 - bits;
  }

  /** The number of a name, undefined where there is none. */
  find(name: string): number | undefined {
    const found = this.#slots[this.#slot(name)] ?? 0;
    return found === 0 ? undefined : found - 1;
  }

  /** Adds a number under its name; false where another has that name already. */
  add(index: number): boolean {
    const slot = this.#slot(this.nameOf(index));
    if (this.#slots[slot] !== 0) return false;
    this.#slots[slot] = index + 1;
    return true;
  }

  /** The slot that has the name, or the empty one where it belongs. */
  #slot(name: string): number {
    const mask = this.#slots.length - 1;
    for (let slot = this.#home(name); ; slot = (slot + 1) & mask) {
      const found = this.#slots[slot] ?? 0;
      if (found === 0 || this.nameOf(found - 1) === name) return slot;
    }
  }

  #home(name: string): number {
    let hash = 1;
    for (let i = 0; i < name.length; i++) {
      const product = hash * this.#at + name.charCodeAt(i);
      hash = product - Math.floor(product / PRIME) * PRIME;
    }
    return Math.imul(hash, GOLDEN_RATIO) >>> this.#shift;
  }
}
