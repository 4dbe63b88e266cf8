/** Suggestions for misspelled names. */

/** Returns "; did you mean NAME?" with the nearest name, or "" if no name is near. */
export function nearest(word: string, names: readonly string[]): string {
  const near = names
    .map((name) => ({ name, distance: distance(word, name) }))
    .filter(({ name, distance: steps }) => steps <= Math.max(1, Math.ceil(name.length / 3)))
    .toSorted((a, b) => a.distance - b.distance)[0];
  return near ? `; did you mean ${near.name}?` : "";
}

/**
 * Returns the edit distance of two strings, where a swap of neighbouring characters counts as one step. It is infinite if `a` is
 * longer than 64 characters.
 */
export function distance(a: string, b: string): number {
  if (a.length > 64) return Number.POSITIVE_INFINITY;
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      const swapped =
        i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
          ? (before[j - 2] ?? 0) + 1
          : Infinity;
      row[j] = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + same, swapped);
    }
    [before, last] = [last, row];
  }
  return last[b.length] ?? 0;
}
