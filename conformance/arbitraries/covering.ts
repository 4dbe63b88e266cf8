/** Combinations of options, and few of them in which any two values meet that can. */

/** Options by name, and the values of each. */
export type Options = Readonly<Record<string, readonly unknown[]>>;

/** One value of each option. */
export type Choice<O extends Options> = { readonly [K in keyof O]: O[K][number] };

/** Every combination. */
export function product<O extends { readonly [K in keyof O]?: readonly unknown[] }>(
  options: O,
): { readonly [K in keyof O]: NonNullable<O[K]>[number] }[] {
  let rows: Record<string, unknown>[] = [{}];
  for (const [name, values] of Object.entries<readonly unknown[] | undefined>(options))
    rows = rows.flatMap((row) => (values ?? []).map((value) => ({ ...row, [name]: value })));
  return rows as { readonly [K in keyof O]: NonNullable<O[K]>[number] }[];
}

/** Names of all pairs of values in a row. */
function pairsOf(row: Readonly<Record<string, unknown>>): readonly string[] {
  const entries = Object.entries(row).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  return entries.flatMap((one, i) => entries.slice(i + 1).map((other) => `${one} & ${other}`));
}

/** The pairs of values that any of these rows has. */
export function pairsAmong(rows: readonly Readonly<Record<string, unknown>>[]): ReadonlySet<string> {
  return new Set(rows.flatMap(pairsOf));
}

/** Some of the rows, in which every pair of values occurs that occurs in any: each next one has the most new pairs. */
export function covering<R extends Readonly<Record<string, unknown>>>(rows: readonly R[]): readonly R[] {
  const left = new Set(pairsAmong(rows));
  const chosen: R[] = [];
  while (left.size > 0) {
    let best: R | undefined;
    let most = 0;
    for (const row of rows) {
      const fresh = pairsOf(row).filter((pair) => left.has(pair)).length;
      if (fresh > most) [best, most] = [row, fresh];
    }
    if (!best) break;
    for (const pair of pairsOf(best)) left.delete(pair);
    chosen.push(best);
  }
  return chosen;
}
