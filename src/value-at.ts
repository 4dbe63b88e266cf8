/** Fields of plain data by their paths. */

/** Returns the value at a path of field names that are separated by dots, or undefined if a field is missing. */
export function valueAt(data: unknown, path: string): unknown {
  return path
    .split(".")
    .reduce<unknown>((value, field) => (value as Record<string, unknown> | null | undefined)?.[field], data);
}
