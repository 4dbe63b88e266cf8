/** Combinations of options, and few in which any values meet that can: chosen from all, or drawn where all are too many. */

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

type Table = Readonly<Record<string, readonly unknown[]>>;
/** The number of a value for each option. */
type Numbers = number[];

/**
 * Some rows of `table`, one value of each option, in which every pair of values stands, where there are too many rows to go
 * through: each is filled from a pair that none before has, option by option with the value that makes the most new pairs;
 * `draw(n)`, from 0 to n - 1, decides between equals.
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
