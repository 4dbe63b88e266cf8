/** Records which bytes of a range were written, and that each was written only once. */

/** A set of integers as disjoint spans [begin, end), in ascending order. Adjacent spans are merged. */
export class Spans {
  /** The begin and end of each span, alternating. */
  readonly #edges: number[] = [];

  /** Adds [begin, end). If it overlaps a span, adds nothing and returns false. */
  add(begin: number, end: number): boolean {
    if (begin === end) return true;
    // most spans are added after the last one
    let at = this.#edges.length;
    while (at > 0 && this.#edge(at - 1) > begin) at--;
    // if the number of edges before `begin` is odd, `begin` lies inside a span
    if (at % 2 === 1 || this.#edge(at) < end) return false;
    const joinsBefore = at > 0 && this.#edges[at - 1] === begin;
    const joinsAfter = this.#edges[at] === end;
    this.#edges.splice(
      joinsBefore ? at - 1 : at,
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

  #edge(at: number): number {
    return this.#edges[at] ?? Infinity;
  }
}
