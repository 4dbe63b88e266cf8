/** Reads configuration fields of unknown type. */

export const isText = (value: unknown): value is string => typeof value === "string";

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;

/** Returns a positive integer; undefined for other values. */
export const countIn = (value: unknown): number | undefined => (isCount(value) ? value : undefined);

/** Returns two positive integers; undefined for other values. */
export function pairIn(value: unknown): readonly [number, number] | undefined {
  if (!Array.isArray(value) || value.length !== 2) return undefined;
  const [rows, columns] = value;
  return isCount(rows) && isCount(columns) ? [rows, columns] : undefined;
}

/** Returns the elements of an array; an empty array for other values. */
export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
