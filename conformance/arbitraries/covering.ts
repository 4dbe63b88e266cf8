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

/**
 * For each row, the numbers of its combinations of `strength` values. Equal combinations have equal numbers, counted from 0.
 * Options with one value in all rows are left out.
 */
function numberedTuples(
  rows: readonly Readonly<Record<string, unknown>>[],
  strength: number,
): { readonly tuples: readonly Uint32Array[]; readonly count: number } {
  // the values of all options are numbered together
  let values = 0;
  const columns: Uint32Array[] = [];
  for (const name of Object.keys(rows[0] ?? {})) {
    const [column, count] = numberedValues(rows, name, values);
    if (count < 2) continue;
    columns.push(column);
    values += count;
  }
  const width = Math.min(strength, columns.length);
  let subsets: Uint32Array[][] = [[]];
  for (let i = 0; i < width; i++)
    subsets = subsets.flatMap((subset) => {
      const last = subset.at(-1);
      return columns.slice(last ? columns.indexOf(last) + 1 : 0).map((column) => [...subset, column]);
    });
  // the number of a tuple plus 1, indexed by the tuple's values as digits
  const numbers = new Uint32Array(values ** width);
  let count = 0;
  const tuples = rows.map(() => new Uint32Array(subsets.length));
  subsets.forEach((subset, i) => {
    for (let row = 0; row < rows.length; row++) {
      let index = 0;
      for (const column of subset) index = index * values + (column[row] as number);
      if (numbers[index] === 0) numbers[index] = ++count;
      (tuples[row] as Uint32Array)[i] = (numbers[index] as number) - 1;
    }
  });
  return { tuples, count };
}

/** A number for each row's value of an option, counted from `first`, and how many values there are. Values are equal as JSON. */
function numberedValues(
  rows: readonly Readonly<Record<string, unknown>>[],
  name: string,
  first: number,
): readonly [Uint32Array, number] {
  const byText = new Map<string, number>();
  // caches the JSON of each value
  const byValue = new Map<unknown, number>();
  const column = Uint32Array.from(rows, (row) => {
    const value = row[name];
    const known = byValue.get(value);
    if (known !== undefined) return known;
    const text = String(JSON.stringify(value));
    const number = byText.get(text) ?? first + byText.size;
    byText.set(text, number);
    byValue.set(value, number);
    return number;
  });
  return [column, byText.size];
}

/**
 * A subset of the rows that contains every combination of `strength` values that any row contains. Greedy: the next row is the
 * one with the most missing combinations.
 */
export function covering<R extends Readonly<Record<string, unknown>>>(
  rows: readonly R[],
  strength: number,
): readonly R[] {
  const { tuples, count } = numberedTuples(rows, strength);
  const rowsWith = Array.from({ length: count }, (): number[] => []);
  for (const [row, numbers] of tuples.entries()) for (const tuple of numbers) rowsWith[tuple]?.push(row);
  // how many missing combinations each row has
  const missing = tuples.map((numbers) => numbers.length);
  const isCovered = new Uint8Array(count);
  const chosen: R[] = [];
  for (let left = count; left > 0; ) {
    let best = 0;
    for (let row = 1; row < missing.length; row++)
      if ((missing[row] as number) > (missing[best] as number)) best = row;
    for (const tuple of tuples[best] as Uint32Array) {
      if (isCovered[tuple]) continue;
      isCovered[tuple] = 1;
      left--;
      for (const row of rowsWith[tuple] as number[]) missing[row] = (missing[row] as number) - 1;
    }
    chosen.push(rows[best] as R);
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
