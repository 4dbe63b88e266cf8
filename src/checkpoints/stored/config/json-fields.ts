/** Reads configuration fields of unknown type. */

export const isText = (value: unknown): value is string => typeof value === "string";

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;

/** A positive integer; undefined for anything else. */
export const countIn = (value: unknown): number | undefined => (isCount(value) ? value : undefined);

/** Two positive integers; undefined for anything else. */
export function pairIn(value: unknown): readonly [number, number] | undefined {
  if (!Array.isArray(value) || value.length !== 2) return undefined;
  const [rows, columns] = value;
  return isCount(rows) && isCount(columns) ? [rows, columns] : undefined;
}

/** The elements of an array; an empty array for anything else. */
export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
