/** A hash table from names to indices. It stores only the indices; the names are stored elsewhere. */

/** The largest prime below 2^26. A product of two residues plus a code unit is then exact in a double. */
const PRIME = 67_108_859;
const GOLDEN_RATIO = 0x9e3779b1;

/**
 * Finds the index of a name. The hash of a name is a polynomial in a random number, so that the author of a file cannot construct
 * collisions: two different names of n characters have equal hashes with a probability of at most n / 2^26. Results do not depend
 * on the random number.
 */
export class NameIndex {
  /** Each slot holds an index plus 1, or 0 if it is empty. */
  readonly #slots: Uint32Array;
  readonly #shift: number;
  readonly #base = randomResidue();

  /** Creates a table for `count` names. `nameOf` returns the name of an index. */
  constructor(
    count: number,
    private readonly nameOf: (index: number) => string,
  ) {
    const bits = Math.max(1, Math.ceil(Math.log2(count + 1)) + 1);
    this.#slots = new Uint32Array(2 ** bits);
    this.#shift = 32 - bits;
  }

  /** Returns the index of a name, or undefined if the name is unknown. */
  find(name: string): number | undefined {
    const slotValue = this.#slots[this.#slot(name)] ?? 0;
    return slotValue === 0 ? undefined : slotValue - 1;
  }

  /** Adds an index under its name. Returns false if the name is already in use. */
  add(index: number): boolean {
    const slot = this.#slot(this.nameOf(index));
    if (this.#slots[slot] !== 0) return false;
    this.#slots[slot] = index + 1;
    return true;
  }

  /** Returns the slot that holds the name, or else the empty slot where it belongs. */
  #slot(name: string): number {
    const mask = this.#slots.length - 1;
    for (let slot = this.#home(name); ; slot = (slot + 1) & mask) {
      const slotValue = this.#slots[slot] ?? 0;
      if (slotValue === 0 || this.nameOf(slotValue - 1) === name) return slot;
    }
  }

  #home(name: string): number {
    let hash = 1;
    for (let i = 0; i < name.length; i++) {
      const product = hash * this.#base + name.charCodeAt(i);
      hash = product - Math.floor(product / PRIME) * PRIME;
    }
    return Math.imul(hash, GOLDEN_RATIO) >>> this.#shift;
  }
}

/** A number from 1 to PRIME - 1, from 64 random bits of the Web Crypto generator. */
function randomResidue(): number {
  const [bits = 0n] = crypto.getRandomValues(new BigUint64Array(1));
  return Number(bits % BigInt(PRIME - 1)) + 1;
}
