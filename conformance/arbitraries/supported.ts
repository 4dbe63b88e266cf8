/** What a subject supports of an operation: the values that fields of an input may have. */
import * as fc from "fast-check";
import { valueAt } from "../../src/options.js";

/**
 * The values that fields of an input may have, by the path of the field: `{ "spec.format": ["e4m3"], "x.dtype": ["f32"] }`. A
 * field that is not named may have any value.
 */
export type Supported = Readonly<Record<string, readonly unknown[]>>;

/** Whether the field at `path` may have `value`; undefined stands for an absent field. */
export function mayBe(supported: Supported, path: string, value: unknown): boolean {
  const values = supported[path];
  return values === undefined || values.some((each) => Object.is(each, value ?? null));
}

/** Whether all fields below `prefix`, or those of `paths`, have values that are supported. */
export function allows(
  supported: Supported,
  input: unknown,
  prefix = "",
  paths: readonly string[] = Object.keys(supported),
): boolean {
  return paths.every(
    (path) => !path.startsWith(prefix) || mayBe(supported, path, valueAt(input, path.slice(prefix.length))),
  );
}

/** Those of `values` that the field at `path` may have. */
export function among<T>(supported: Supported, path: string, values: readonly T[]): readonly T[] {
  return values.filter((value) => mayBe(supported, path, value));
}

/** `usual`, unless the field at `path` is named: then one of those of its `values` that are supported, if there are any. */
export function oneAmong<T>(
  supported: Supported,
  path: string,
  values: readonly T[],
  usual: fc.Arbitrary<T> = fc.constantFrom(...values),
): fc.Arbitrary<T> {
  const left = supported[path] ? among(supported, path, values) : [];
  return left.length > 0 ? fc.constantFrom(...left) : usual;
}
