/** Rows in which every pair of values of every two options stands. */

type Table = Readonly<Record<string, readonly unknown[]>>;
type Row = number[];

/**
 * Rows of `table`, one value of each option, in which all pairs stand: each row is filled from a pair that none before has,
 * option by option with the value that makes the most new pairs; `draw(n)`, from 0 to n - 1, decides between equals.
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
  const rows: Row[] = [];
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

function grown(seed: string, sizes: readonly number[], open: Set<string>, draw: (n: number) => number): Row {
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
  return row as Row;
}
