/** The inputs of an operation that a subject supports: the allowed values of fields. */
import * as fc from "fast-check";
import { valueAt } from "../../src/options.js";

/**
 * The allowed values of input fields by path: `{ "spec.format": ["e4m3"], "x.dtype": ["f32"] }`. A field that is not listed may
 * have any value.
 */
export type Supported = Readonly<Record<string, readonly unknown[]>>;

/** Whether the field at `path` may have `value`; undefined stands for an absent field. */
export function mayBe(supported: Supported, path: string, value: unknown): boolean {
  const values = supported[path];
  return values === undefined || values.some((each) => Object.is(each, value ?? null));
}

/** Whether the fields below `prefix`, or the fields in `paths`, have supported values. */
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

/** The elements of `values` that the field at `path` may have. */
export function among<T>(supported: Supported, path: string, values: readonly T[]): readonly T[] {
  return values.filter((value) => mayBe(supported, path, value));
}

/** Draws from the supported `values` if the field at `path` is listed and has any, else from `usual`. */
export function oneAmong<T>(
  supported: Supported,
  path: string,
  values: readonly T[],
  usual: fc.Arbitrary<T> = fc.constantFrom(...values),
): fc.Arbitrary<T> {
  const left = supported[path] ? among(supported, path, values) : [];
  return left.length > 0 ? fc.constantFrom(...left) : usual;
}
