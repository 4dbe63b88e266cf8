/** The slots of a Float64Array in which the addon takes the arguments of a call. packing.gen.ts writes them. */
import { WIDE } from "../../formats/contract.gen.js";
import type { Declaration, Located, LocatedWide } from "./native-arguments.js";
import { ABSENT, slotsOf } from "./native-slots.js";

const ABSENT_LOW = Number(BigInt.asUintN(32, ABSENT));
const ABSENT_HIGH = Number(ABSENT >> 32n);

/**
 * The slots of one call, or of a list of argument sets of one call. Native code reads them before the call returns, so that the
 * next call can use them again.
 */
export class Slots {
  numbers: Float64Array;
  /** The slots as 32-bit words, the low word first: a NaN that is written as a number might not keep its payload. */
  #words: Uint32Array;
  /** The first slot of the argument set that is written. */
  #first = 0;
  /** The number of slots of an argument set. */
  readonly #size: number;

  constructor(declaration: Declaration) {
    this.#size = slotsOf(declaration).length;
    this.numbers = new Float64Array(this.#size);
    this.#words = new Uint32Array(this.numbers.buffer);
  }

  /** Writes each set of a list by `write`, and returns the slots of all sets, one set after the other. */
  ofList<A>(list: readonly A[], write: (slots: this, args: A) => void): Float64Array {
    const length = list.length * this.#size;
    if (this.numbers.length < length) {
      this.numbers = new Float64Array(length);
      this.#words = new Uint32Array(this.numbers.buffer);
    }
    for (let i = 0; i < list.length; i++) {
      this.#first = i * this.#size;
      write(this, list[i] as A);
    }
    this.#first = 0;
    return this.numbers.subarray(0, length);
  }

  /** Marks `count` arguments as absent. */
  absent(slot: number, count: number): void {
    const words = this.#words;
    const first = this.#first + slot;
    for (let word = 2 * first; word < 2 * (first + count); word += 2) {
      words[word] = ABSENT_LOW;
      words[word + 1] = ABSENT_HIGH;
    }
  }

  number(slot: number, value: number | undefined): void {
    if (value === undefined) this.absent(slot, 1);
    else this.numbers[this.#first + slot] = value;
  }

  flag(slot: number, value: boolean | undefined): void {
    if (value === undefined) this.absent(slot, 1);
    else this.numbers[this.#first + slot] = value ? 1 : 0;
  }

  memory(slot: number, value: Located | undefined): void {
    if (value === undefined) this.absent(slot, 1);
    else this.numbers[this.#first + slot] = value.address;
  }

  /** Writes an address, and the number of the dtype into the next slot. */
  wide(slot: number, value: LocatedWide | undefined): void {
    if (value === undefined) {
      this.absent(slot, 2);
      return;
    }
    this.numbers[this.#first + slot] = value.address;
    this.numbers[this.#first + slot + 1] = WIDE[value.dtype];
  }
}
