/** The slots of a Float64Array in which the addon takes the arguments of a call. packing.gen.ts writes them. */
import { WIDE } from "../../formats/contract.gen.js";
import type { Declaration, Located, LocatedWide } from "./native-arguments.js";
import { ABSENT, slotsOf } from "./native-slots.js";

const ABSENT_LOW = Number(BigInt.asUintN(32, ABSENT));
const ABSENT_HIGH = Number(ABSENT >> 32n);

/** The slots of one call. Native code reads them before the call returns, so that the next call can use them again. */
export class Slots {
  readonly numbers: Float64Array;
  /** The slots as 32-bit words, the low word first: a NaN that is written as a number might not keep its payload. */
  readonly #words: Uint32Array;

  constructor(declaration: Declaration) {
    this.numbers = new Float64Array(slotsOf(declaration).length);
    this.#words = new Uint32Array(this.numbers.buffer);
  }

  /** Marks `count` arguments as absent. */
  absent(slot: number, count: number): void {
    const words = this.#words;
    for (let word = 2 * slot; word < 2 * (slot + count); word += 2) {
      words[word] = ABSENT_LOW;
      words[word + 1] = ABSENT_HIGH;
    }
  }

  number(slot: number, value: number | undefined): void {
    if (value === undefined) this.absent(slot, 1);
    else this.numbers[slot] = value;
  }

  flag(slot: number, value: boolean | undefined): void {
    if (value === undefined) this.absent(slot, 1);
    else this.numbers[slot] = value ? 1 : 0;
  }

  memory(slot: number, value: Located | undefined): void {
    if (value === undefined) this.absent(slot, 1);
    else this.numbers[slot] = value.address;
  }

  /** Writes an address, and the number of the dtype into the next slot. */
  wide(slot: number, value: LocatedWide | undefined): void {
    if (value === undefined) {
      this.absent(slot, 2);
      return;
    }
    this.numbers[slot] = value.address;
    this.numbers[slot + 1] = WIDE[value.dtype];
  }
}
