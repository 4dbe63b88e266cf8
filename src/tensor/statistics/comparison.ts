/** Comparison of codes, chunk by chunk. */
import { alignBytes } from "../data.js";
import { type Codes, codesOf, eachDiffering } from "./differing.js";
import { type CodeTable, compareBits, type ElementType, f32Rank, NAN_RANK, tableOf } from "./elements.js";
import { CAUSES, type Cause, type ErrorStatistics, SCALE, StatisticsCollector, TIE } from "./statistics.js";
import { type WidePair, widePair } from "./wide.js";

/** An element that differs. */
export interface Difference {
  /** The index of the element, in row-major order. */
  readonly index: number;
  /** The codes of both sides, as unsigned integers. */
  readonly a: bigint;
  readonly b: bigint;
  readonly cause: Cause;
}

/** The scales of a chunk of codes: which scale each code has, and whether both sides have the same. */
export interface ChunkScales {
  /** For each code of the chunk, the index of its scale. */
  readonly index: Uint32Array;
  /** The factors of codes, by these indices. */
  readonly a: Float32Array | Float64Array;
  readonly b: Float32Array | Float64Array;
}

/** The value of an element, from the value of its code and its scale. */
export type ValueUnder = (code: number, factor: number) => number;

const product: ValueUnder = (code, factor) => Math.fround(code * factor);

/** Options of a comparison. All fields are optional. */
export interface ComparisonOptions {
  /** How many differing elements of each cause are kept, the first ones. Default 1. */
  readonly examples?: number;
  /** The value of a code under the factor of its scale. Default: their product, rounded to f32. */
  readonly valueUnder?: ValueUnder;
  /**
   * Whether the scaled value of an element lies halfway between two neighbouring codes; called only for elements with these
   * codes.
   */
  readonly isTie?: (index: number, a: number, b: number) => boolean;
}

/** The runs of equal elements between differing elements: their number, and the sum of their squares in ascending order. */
class EqualRuns {
  count = 0;
  squares = 0;
  #from = 0;

  /** `plus` adds the squares of elements `from` to `to` to a sum. */
  constructor(private readonly plus: (squares: number, from: number, to: number) => number) {}

  /** Adds the run that ends before element `i`, which differs. */
  endBefore(i: number): void {
    this.squares = this.plus(this.squares, this.#from, i);
    this.count += i - this.#from;
    this.#from = i + 1;
  }
}

/** Compares two sequences of elements of one type, which are given in chunks. Packed codes are unpacked before. */
export class Comparison {
  readonly #collector = new StatisticsCollector();
  readonly #examples: Difference[] = [];
  readonly #keptCounts = CAUSES.map(() => 0);
  readonly #table: CodeTable | undefined;
  readonly #limit: number;
  readonly #valueUnder: ValueUnder;
  #offset = 0;

  constructor(
    private readonly type: ElementType,
    private readonly options: ComparisonOptions = {},
  ) {
    this.#table = tableOf(type);
    this.#limit = options.examples ?? 1;
    this.#valueUnder = options.valueUnder ?? product;
  }

  /** The first elements that differ, in their order: as many of each cause as the options ask for. */
  get examples(): readonly Difference[] {
    return this.#examples;
  }

  /** Returns the statistics of all chunks so far. */
  result(): ErrorStatistics {
    return this.#collector.result();
  }

  /**
   * Adds the next elements of both sides, as bytes, little endian. With `scales`, values are code times scale.
   */
  add(a: Uint8Array, b: Uint8Array, scales?: ChunkScales): void {
    const bits = compareBits(this.type);
    const count = (a.length * 8) / bits;
    if (this.#table && scales) this.#addScaled(codesOf(a, bits), codesOf(b, bits), this.#table, scales);
    else if (this.#table) this.#addCodes(a, b, this.#table);
    else if (this.type === "f32") this.#addFloats(alignBytes(a, 4), alignBytes(b, 4));
    else this.#addWide(widePair(this.type, a, b), count);
    this.#offset += count;
  }

  #addCodes(a: Uint8Array, b: Uint8Array, table: CodeTable): void {
    const bits = compareBits(this.type);
    const [x, y] = [codesOf(a, bits), codesOf(b, bits)];
    const equal = new EqualRuns((squares, from, to) => plusSquares(squares, x, table.squares, from, to));
    eachDiffering(a, b, (bits / 8) as 1 | 2 | 4, (i) => {
      equal.endBefore(i);
      this.#differentCodes(i, x[i] as number, y[i] as number, table, 1, 1);
    });
    equal.endBefore(x.length);
    this.#collector.equal(equal.count, equal.squares);
  }

  #addScaled(a: Codes, b: Codes, table: CodeTable, scales: ChunkScales): void {
    const { values } = table;
    const valueUnder = this.#valueUnder;
    // a call of the function costs more than the product
    const isProduct = valueUnder === product;
    let squares = 0;
    let equal = 0;
    let [at, sa, sb, isSame] = [-1, 0, 0, true];
    for (let i = 0; i < a.length; i++) {
      const x = a[i] as number;
      const y = b[i] as number;
      const scale = scales.index[i] as number;
      if (scale !== at) {
        at = scale;
        sa = scales.a[at] as number;
        sb = scales.b[at] as number;
        isSame = Object.is(sa, sb);
      }
      const number = values[x] as number;
      const value = isProduct ? Math.fround(number * sa) : valueUnder(number, sa);
      if (x === y && (isSame || Object.is(value, valueUnder(number, sb)))) {
        equal++;
        if (Number.isFinite(value)) squares += value * value;
      } else this.#differentCodes(i, x, y, table, sa, sb);
    }
    this.#collector.equal(equal, squares);
  }

  #differentCodes(
    i: number,
    x: number,
    y: number,
    { values, ranks }: CodeTable,
    sa: number,
    sb: number,
  ): void {
    const p = ranks[x] as number;
    const q = ranks[y] as number;
    if (p === NAN_RANK && q === NAN_RANK) {
      this.#collector.otherNaN();
      return;
    }
    const ulp = Math.abs(p - q);
    // the scales differ, unless both are NaN
    const knownCause =
      sa !== sb && !(Number.isNaN(sa) && Number.isNaN(sb))
        ? SCALE
        : ulp === 1 && this.#isTie(i, x, y)
          ? TIE
          : -1;
    const a = this.#valueUnder(values[x] as number, sa);
    const cause = this.#collector.different(a, this.#valueUnder(values[y] as number, sb), ulp, knownCause);
    if ((this.#keptCounts[cause] as number) < this.#limit) this.#keep(i, BigInt(x), BigInt(y), cause);
  }

  #isTie(i: number, x: number, y: number): boolean {
    const { isTie } = this.options;
    return isTie?.(this.#offset + i, x, y) ?? false;
  }

  #addFloats(a: Uint8Array, b: Uint8Array): void {
    const count = a.length / 4;
    const [x, y] = [
      new Int32Array(a.buffer, a.byteOffset, count),
      new Int32Array(b.buffer, b.byteOffset, count),
    ];
    const [u, v] = [
      new Float32Array(a.buffer, a.byteOffset, count),
      new Float32Array(b.buffer, b.byteOffset, count),
    ];
    const equal = new EqualRuns((squares, from, to) => plusFloatSquares(squares, u, from, to));
    eachDiffering(a, b, 4, (i) => {
      equal.endBefore(i);
      this.#differentFloats(i, x[i] as number, y[i] as number, u[i] as number, v[i] as number);
    });
    equal.endBefore(count);
    this.#collector.equal(equal.count, equal.squares);
  }

  #differentFloats(i: number, p: number, q: number, a: number, b: number): void {
    if (Number.isNaN(a) && Number.isNaN(b)) {
      this.#collector.otherNaN();
      return;
    }
    const cause = this.#collector.different(a, b, Math.abs(f32Rank(p) - f32Rank(q)), -1);
    if ((this.#keptCounts[cause] as number) < this.#limit)
      this.#keep(i, BigInt(p >>> 0), BigInt(q >>> 0), cause);
  }

  #addWide(pair: WidePair, count: number): void {
    for (let i = 0; i < count; i++) {
      const { codes, values, ulp, areBothNaN } = pair(i);
      const [x, y] = codes;
      if (x === y) {
        const [value] = values;
        this.#collector.equal(1, Number.isFinite(value) ? value * value : 0);
      } else if (areBothNaN) this.#collector.otherNaN();
      else {
        const cause = this.#collector.different(...values, ulp, -1);
        if ((this.#keptCounts[cause] as number) < this.#limit) this.#keep(i, x, y, cause);
      }
    }
  }

  #keep(i: number, a: bigint, b: bigint, cause: number): void {
    this.#keptCounts[cause] = (this.#keptCounts[cause] as number) + 1;
    this.#examples.push({ index: this.#offset + i, a, b, cause: CAUSES[cause] as Cause });
  }
}

/** `sum` plus the squares of the values of codes `from` to `to - 1`, one after another. */
function plusSquares(sum: number, codes: Codes, squares: Float64Array, from: number, to: number): number {
  let total = sum;
  for (let i = from; i < to; i++) total += squares[codes[i] as number] as number;
  return total;
}

/** `sum` plus the squares of the finite ones of numbers `from` to `to - 1`, one after another. */
function plusFloatSquares(sum: number, numbers: Float32Array, from: number, to: number): number {
  let total = sum;
  for (let i = from; i < to; i++) {
    const value = numbers[i] as number;
    if (Number.isFinite(value)) total += value * value;
  }
  return total;
}
