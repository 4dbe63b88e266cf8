/** What each code becomes under a scale, in tables of the kernels, and what that changes. */
import type { Changes } from "../convert/wide.js";
import { CODE_TYPES, type CodeTypeName } from "../stored/code-types.js";
import type { Kernels } from "./kernels.js";

/** The fields of a table in assembly/checkpoints/wide-table.ts, as byte offsets. */
const TABLE = { changed: 1024, differences: 1280, quotients: 3328, largest: 5568, stride: 5584 } as const;

/** What is asked of the elements under a scale: nothing, how many change, or also which codes occur. */
export const ASKS = { nothing: 0, count: 1, mark: 2 } as const;

/** Tables of one kind of code, one for each scale. */
export class CodeTables {
  readonly address: number;
  readonly stride = TABLE.stride;
  /** What is asked of each table. */
  readonly asks: Uint8Array;
  readonly asksAddress: number;
  /** The codes that occurred under each scale that asks for them. */
  readonly marksAddress: number;
  /** The number of codes. */
  readonly codes: number;
  readonly #marks: Uint8Array;
  readonly #values: number;

  /** All tables ask for nothing. */
  constructor(
    private readonly kernels: Kernels,
    private readonly type: CodeTypeName,
    count: number,
  ) {
    const { values } = CODE_TYPES[type];
    this.codes = values.length;
    this.address = kernels.place("tables", count * TABLE.stride).address;
    const asks = kernels.place("asks", count);
    const marks = kernels.place("marks", count * this.codes);
    [this.asks, this.asksAddress] = [asks.bytes.fill(ASKS.nothing), asks.address];
    [this.#marks, this.marksAddress] = [marks.bytes.fill(0), marks.address];
    this.#values = kernels.put(`values of ${type}`, values);
  }

  /** Fills a table with what codes times a scale are in a wide type. It asks for what `changes` may not know yet. */
  widen(index: number, scale: number, type: number, changes: Changes): void {
    const table = this.address + index * TABLE.stride;
    const about = { values: this.#values, count: this.codes, scale, type, table };
    if (this.kernels.call("wideTable", about) === 0) this.asks[index] = ASKS.nothing;
    else this.#ask(index, changes);
  }

  /** Fills a table with what changes if one scale takes the place of another. Both are finite and not negative. */
  replace(index: number, before: number, after: number, changes: Changes): void {
    const table = this.address + index * TABLE.stride;
    const { values } = CODE_TYPES[this.type];
    const { differences, quotients } = this.#changesOf(index);
    const changed = this.kernels.bytes(table + TABLE.changed, this.codes);
    values.forEach((value, code) => {
      const difference = Math.abs(value * before - value * after);
      const same = value * before === value * after;
      changed[code] = same ? 0 : 0xff;
      differences[code] = same ? 0 : difference;
      quotients[code] = same ? 0 : difference / Math.abs(value * before);
    });
    this.#largest(index).set([
      differences.reduce((max, each) => Math.max(max, each)),
      quotients.reduce((max, each) => Math.max(max, each)),
    ]);
    if (changed.includes(0xff)) this.#ask(index, changes);
    else this.asks[index] = ASKS.nothing;
  }

  /** Adds the codes that were marked under a scale to the largest changes. */
  settle(index: number, changes: Changes): void {
    const { differences, quotients } = this.#changesOf(index);
    const first = index * this.codes;
    for (let code = 0; code < this.codes; code++) {
      if (!this.#marks[first + code]) continue;
      changes.max = Math.max(changes.max, differences[code] as number);
      changes.relative = Math.max(changes.relative, quotients[code] as number);
    }
    this.#ask(index, changes);
  }

  /** Asks for counts alone if no code under a scale can be a larger change than those that are known. */
  #ask(index: number, changes: Changes): void {
    const [difference = 0, quotient = 0] = this.#largest(index);
    const isKnown = difference <= changes.max && quotient <= changes.relative;
    this.asks[index] = isKnown ? ASKS.count : ASKS.mark;
  }

  /** The largest difference and the largest quotient under a scale. */
  #largest(index: number): Float64Array {
    return this.kernels.doubles(this.address + index * TABLE.stride + TABLE.largest, 2);
  }

  #changesOf(index: number): { readonly differences: Float64Array; readonly quotients: Float64Array } {
    const table = this.address + index * TABLE.stride;
    return {
      differences: this.kernels.doubles(table + TABLE.differences, this.codes),
      quotients: this.kernels.doubles(table + TABLE.quotients, this.codes),
    };
  }

  /** As `settle`, for all scales that ask for codes. */
  settleAll(changes: Changes): void {
    for (const [index, asks] of this.asks.entries()) if (asks === ASKS.mark) this.settle(index, changes);
  }

  /** Forgets which codes occurred. */
  clear(): void {
    this.#marks.fill(0);
  }
}
