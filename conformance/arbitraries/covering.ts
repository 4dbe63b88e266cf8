/**
 * Covering arrays: small sets of option combinations in which every possible combination of `strength` values occurs.
 */

/** The Cartesian product of the options' values. */
export function product<O extends { readonly [K in keyof O]?: readonly unknown[] }>(
  options: O,
): { readonly [K in keyof O]: NonNullable<O[K]>[number] }[] {
  let rows: Record<string, unknown>[] = [{}];
  for (const [name, values] of Object.entries<readonly unknown[] | undefined>(options))
    rows = rows.flatMap((row) => (values ?? []).map((value) => ({ ...row, [name]: value })));
  return rows as { readonly [K in keyof O]: NonNullable<O[K]>[number] }[];
}

/** One name for each subset of `strength` values of a row. */
function tuplesOf(row: Readonly<Record<string, unknown>>, strength: number): readonly string[] {
  let tuples: (readonly [last: number, name: string])[] = [[-1, ""]];
  const values = Object.entries(row).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  for (let i = 0; i < strength; i++)
    tuples = tuples.flatMap(([last, name]) =>
      values.slice(last + 1).map((value, k) => [last + 1 + k, `${name} & ${value}`] as const),
    );
  return tuples.map(([, name]) => name);
}

/** The names of all value tuples that occur in at least one of the rows. */
export function tuplesAmong(
  rows: readonly Readonly<Record<string, unknown>>[],
  strength: number,
): ReadonlySet<string> {
  return new Set(rows.flatMap((row) => tuplesOf(row, strength)));
}

/** The rows, without options that have the same value in all rows. */
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
 * A subset of the rows that contains every combination of `strength` values that any row contains. Greedy: the next row is the
 * one with the most missing combinations.
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

type Table = Readonly<Record<string, readonly unknown[]>>;
/** The index of one value for each option. */
type Numbers = number[];

/**
 * Rows of `table` (one value of each option) in which every pair of values occurs. For tables whose product is too
 * large to enumerate. Each row starts from a missing pair and is completed option by option with the value that adds
 * the most missing pairs. `draw(n)` returns an index from 0 to n - 1; it breaks ties.
 */
export function pairwise<T extends Table>(
  table: T,
  draw: (n: number) => number,
): { readonly [K in keyof T]: T[K][number] }[] {
  const names = Object.keys(table) as (keyof T & string)[];
  const sizes = names.map((name) => (table[name] as readonly unknown[]).length);
  const open = new Set<string>();
  for (let a = 0; a < names.length; a++)
    for (let b = a + 1; b < names.length; b++)
      for (let i = 0; i < (sizes[a] as number); i++)
        for (let j = 0; j < (sizes[b] as number); j++) open.add(pairKey(a, i, b, j));
  const rows: Numbers[] = [];
  while (open.size > 0) {
    const row = grown([...open][draw(open.size)] as string, sizes, open, draw);
    for (let a = 0; a < row.length; a++)
      for (let b = a + 1; b < row.length; b++) open.delete(pairKey(a, row[a] as number, b, row[b] as number));
    rows.push(row);
  }
  return rows.map((row) => {
    const entries = names.map((name, at) => [name, (table[name] as readonly unknown[])[row[at] as number]]);
    return Object.fromEntries(entries);
  });
}

function pairKey(a: number, i: number, b: number, j: number): string {
  return a < b ? `${a},${i},${b},${j}` : `${b},${j},${a},${i}`;
}

function grown(
  seed: string,
  sizes: readonly number[],
  open: Set<string>,
  draw: (n: number) => number,
): Numbers {
  const [a, i, b, j] = seed.split(",").map(Number) as [number, number, number, number];
  const row: (number | undefined)[] = sizes.map(() => undefined);
  row[a] = i;
  row[b] = j;
  const left = sizes.map((_, at) => at).filter((at) => at !== a && at !== b);
  while (left.length > 0) {
    const [at] = left.splice(draw(left.length), 1) as [number];
    const gains = Array.from({ length: sizes[at] as number }, (_, value) =>
      row.reduce<number>(
        (sum, other, where) =>
          other !== undefined && open.has(pairKey(at, value, where, other)) ? sum + 1 : sum,
        0,
      ),
    );
    const best = Math.max(...gains);
    const ties = gains.flatMap((gain, value) => (gain === best ? [value] : []));
    row[at] = ties[draw(ties.length)] as number;
  }
  return row as Numbers;
}
