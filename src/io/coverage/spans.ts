/** Records which bytes of a range were written, and that each was written only once. */

/** A set of integers as disjoint spans [begin, end), in ascending order. Adjacent spans are merged. */
export class Spans {
  /** The begin and end of each span, alternating. */
  readonly #edges: number[] = [];

  /** Adds [begin, end). If it overlaps a span, adds nothing and returns false. */
  add(begin: number, end: number): boolean {
    if (begin === end) return true;
    // most spans are added after the last one
    let index = this.#edges.length;
    while (index > 0 && this.#edge(index - 1) > begin) index--;
    // if the number of edges before `begin` is odd, `begin` lies inside a span
    if (index % 2 === 1 || this.#edge(index) < end) return false;
    const joinsBefore = index > 0 && this.#edges[index - 1] === begin;
    const joinsAfter = this.#edges[index] === end;
    this.#edges.splice(
      joinsBefore ? index - 1 : index,
      Number(joinsBefore) + Number(joinsAfter),
      ...(joinsBefore ? [] : [begin]),
      ...(joinsAfter ? [] : [end]),
    );
    return true;
  }

  /** The total number of bytes in all spans. */
  get size(): number {
    return this.#edges.reduce((sum, edge, i) => (i % 2 === 0 ? sum - edge : sum + edge), 0);
  }

  #edge(index: number): number {
    return this.#edges[index] ?? Infinity;
  }
}
