/** Which pages of a cache each sequence has. */
import { ArgumentError } from "../../errors.js";
import { describe, integer } from "../../options.js";

/** The name of a sequence. */
export type SequenceId = number | string;

/** A sequence of the current batch. */
interface Sequence {
  /** The number of positions before the current step. */
  readonly start: number;
  /** The number of positions after the current step. */
  readonly length: number;
  readonly pages: readonly number[];
}

/** New rows of one sequence that are in one page. */
export interface TokenRun {
  /** The row of the batch. */
  readonly row: number;
  /** The first of the sequence's new rows. */
  readonly start: number;
  readonly count: number;
  /** The position in the cache, counted over all pages. */
  readonly slot: number;
}

const newPositions = integer(0, 2 ** 31 - 1);

/** Assigns pages of a cache to sequences. */
export class PageTable {
  #sequences: ReadonlyMap<SequenceId, Sequence> = new Map();
  #free: readonly number[];

  constructor(
    readonly pageCount: number,
    readonly pageSize: number,
    /** The largest number of pages of a sequence. */
    readonly perSequence: number,
  ) {
    this.#free = Array.from({ length: pageCount }, (_, page) => page);
  }

  /** The sequences of the current batch, in order of its rows. */
  get sequences(): ReadonlyMap<SequenceId, Sequence> {
    return this.#sequences;
  }

  /** Begins a step. Throws `ArgumentError` with nothing changed if positions or pages do not suffice. */
  step(steps: readonly (readonly [SequenceId, number])[], maxLength: number): void {
    const ids = new Set(steps.map(([id]) => id));
    const releasedPages = [...this.#sequences].flatMap(([id, { pages }]) => (ids.has(id) ? [] : pages));
    const freePages = [...this.#free, ...releasedPages].sort((a, b) => a - b);
    const sequences = new Map<SequenceId, Sequence>();
    for (const [id, count] of steps) {
      newPositions("preStep", `steps of ${describe(id)}`, count);
      const { length: start, pages } = this.#sequences.get(id) ?? { length: 0, pages: [] };
      const length = start + count;
      if (length > maxLength)
        throw new ArgumentError(
          `preStep: sequence ${describe(id)} has ${start} positions and gets ${count}, and maxSequenceLength is ${maxLength}; give fewer`,
        );
      const neededPages = Math.ceil(length / this.pageSize) - pages.length;
      if (neededPages > freePages.length)
        throw new ArgumentError(
          `preStep: sequence ${describe(id)} needs ${neededPages} pages and ${freePages.length} of ${this.pageCount} are free; leave out a sequence, or give more totalNumPages`,
        );
      sequences.set(id, { start, length, pages: [...pages, ...freePages.splice(0, neededPages)] });
    }
    this.#sequences = sequences;
    this.#free = freePages;
  }

  /** The pages of each sequence, padded with 0. */
  rows(): number[] {
    return [...this.#sequences.values()].flatMap(({ pages }) =>
      Array.from({ length: this.perSequence }, (_, i) => pages[i] ?? 0),
    );
  }

  /** The new rows of all sequences, in pieces that are in one page. */
  runs(): readonly TokenRun[] {
    const { pageSize } = this;
    return [...this.#sequences.values()].flatMap(({ start, length, pages }, row) => {
      const runs: TokenRun[] = [];
      for (let position = start; position < length; ) {
        const offset = position % pageSize;
        const count = Math.min(pageSize - offset, length - position);
        const page = pages[Math.floor(position / pageSize)] as number;
        runs.push({ row, start: position - start, count, slot: page * pageSize + offset });
        position += count;
      }
      return runs;
    });
  }

  reset(): void {
    this.#sequences = new Map();
    this.#free = Array.from({ length: this.pageCount }, (_, page) => page);
  }
}
