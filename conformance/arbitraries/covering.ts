/** Combinations of options, and few of them in which any two values meet that can. */

/** Every combination. */
export function product<O extends { readonly [K in keyof O]?: readonly unknown[] }>(
  options: O,
): { readonly [K in keyof O]: NonNullable<O[K]>[number] }[] {
  let rows: Record<string, unknown>[] = [{}];
  for (const [name, values] of Object.entries<readonly unknown[] | undefined>(options))
    rows = rows.flatMap((row) => (values ?? []).map((value) => ({ ...row, [name]: value })));
  return rows as { readonly [K in keyof O]: NonNullable<O[K]>[number] }[];
}

/** Names of the values of a row, `strength` at a time. */
function tuplesOf(row: Readonly<Record<string, unknown>>, strength: number): readonly string[] {
  let tuples: (readonly [last: number, name: string])[] = [[-1, ""]];
  const values = Object.entries(row).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  for (let i = 0; i < strength; i++)
    tuples = tuples.flatMap(([last, name]) =>
      values.slice(last + 1).map((value, k) => [last + 1 + k, `${name} & ${value}`] as const),
    );
  return tuples.map(([, name]) => name);
}

/** The tuples of values that any of these rows has. */
export function tuplesAmong(
  rows: readonly Readonly<Record<string, unknown>>[],
  strength: number,
): ReadonlySet<string> {
  return new Set(rows.flatMap((row) => tuplesOf(row, strength)));
}

/** Rows without the options that have one value in all of them. */
function varying<R extends Readonly<Record<string, unknown>>>(
  rows: readonly R[],
): readonly Readonly<Record<string, unknown>>[] {
  const [first] = rows;
  const differs = (name: string): boolean =>
    rows.some((row) => JSON.stringify(row[name]) !== JSON.stringify(first?.[name]));
  const names = Object.keys(first ?? {}).filter(differs);
  return rows.map((row) => Object.fromEntries(names.map((name) => [name, row[name]])));
}

/**
 * Some of the rows, in which any values of `strength` options occur together that do in any: each next one has the most that
 * are new.
 */
export function covering<R extends Readonly<Record<string, unknown>>>(
  rows: readonly R[],
  strength: number,
): readonly R[] {
  const numbers = new Map<string, number>();
  const numbered = (name: string): number => {
    if (!numbers.has(name)) numbers.set(name, numbers.size);
    return numbers.get(name) as number;
  };
  const candidates = varying(rows).map((row, i) => ({
    row: rows[i] as R,
    tuples: tuplesOf(row, Math.min(strength, Object.keys(row).length)).map(numbered),
  }));
  const left = new Set(numbers.values());
  const chosen: R[] = [];
  while (left.size > 0) {
    const fresh = candidates.map(({ tuples }) => tuples.reduce((n, each) => n + (left.has(each) ? 1 : 0), 0));
    const best = candidates[fresh.indexOf(Math.max(...fresh))];
    if (!best) break;
    for (const tuple of best.tuples) left.delete(tuple);
    chosen.push(best.row);
  }
  return chosen;
}
