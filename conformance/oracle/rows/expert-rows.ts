/** Rows of tokens that are sorted by their experts, from the definition in numerics.md 7.16. */
import { add, mul } from "../core/rational.js";
import { laneSum } from "./norm.js";

type Row = readonly number[];

/** How entries of a routing map get rows. */
export interface Routing {
  /** The number of experts. */
  readonly experts: number;
  /** Whether entries are indices of experts. */
  readonly indices: boolean;
  /** The number of rows. */
  readonly total: number;
  readonly align: number;
}

/** For each entry its row or -1, for each row its entry or -1, and the number of rows of each expert. */
export function rowIdMap(
  routingMap: readonly Row[],
  { experts, indices, total, align }: Routing,
): { readonly rows: number[]; readonly sources: number[]; readonly tokensPerExpert: number[] } {
  const expertIndices = routingMap.flatMap((row) =>
    row.map((value, e) => (indices ? value : value === 0 ? -1 : e)),
  );
  // the entry of each row, before the rows are limited to `total`
  const layout: number[] = [];
  const tokensPerExpert = Array.from({ length: experts }, (_, expert) => {
    const offset = layout.length;
    for (const [entry, entryExpert] of expertIndices.entries())
      if (entryExpert === expert) layout.push(entry);
    while (layout.length % align !== 0) layout.push(-1);
    return Math.min(layout.length, total) - Math.min(offset, total);
  });
  const sources = Array.from({ length: total }, (_, row) => layout[row] ?? -1);
  return { rows: expertIndices.map((_, entry) => sources.indexOf(entry)), sources, tokensPerExpert };
}

/** The selected rows, each times its weight. */
export function takeRows(
  x: readonly Row[],
  columns: number,
  sources: Row,
  { period, weights }: { readonly period: number; readonly weights: Row | undefined },
): number[][] {
  return sources.map((source) => {
    const row = source < 0 ? undefined : x[Math.floor(source / period)];
    return Array.from({ length: columns }, (_, d) => {
      if (!row) return 0;
      return weights ? mul(row[d]!, weights[source]!) : row[d]!;
    });
  });
}

/** The sum of the selected rows, each times its weight. */
export function combineRows(
  x: readonly Row[],
  columns: number,
  rows: readonly Row[],
  weights: readonly Row[] | undefined,
): number[][] {
  return rows.map((entries, t) =>
    Array.from({ length: columns }, (_, d) => {
      let sum = 0;
      for (const [c, entry] of entries.entries()) {
        const value = x[entry]?.[d];
        if (value !== undefined) sum = add(sum, weights ? mul(value, weights[t]![c]!) : value);
      }
      return sum;
    }),
  );
}

/** The dot products of the rows of the gradient and the selected rows. */
export function rowDots(grad: readonly Row[], x: readonly Row[], rows: readonly Row[]): number[][] {
  return rows.map((entries, t) =>
    entries.map((entry) => {
      const row = x[entry];
      return row ? laneSum(row.map((value, d) => mul(grad[t]![d]!, value))) : 0;
    }),
  );
}
