/** Which bytes of a range were given, each once. */

/** Spans [begin, end) that do not overlap, ascending and as few as they can be. */
export class Spans {
  /** Begin and end of each in turn. */
  readonly #edges: number[] = [];

  /** Adds [begin, end); false, and nothing is added, where some of it is there. */
  add(begin: number, end: number): boolean {
    if (begin === end) return true;
    // most are added behind the last
    let at = this.#edges.length;
    while (at > 0 && this.#edge(at - 1) > begin) at--;
    // an odd count of edges before it means that it begins within a span
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

  /** How many bytes of the spans there are. */
  get size(): number {
    return this.#edges.reduce((sum, edge, i) => (i % 2 === 0 ? sum - edge : sum + edge), 0);
  }

  #edge(at: number): number {
    return this.#edges[at] ?? Infinity;
  }
}
