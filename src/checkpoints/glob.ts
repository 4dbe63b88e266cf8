/** Patterns of names: `*` stands for any text, `?` for one character. */
import { ArgumentError } from "../errors.js";
import { someNames } from "../io/source.js";

/** Whether the whole name matches. The time is at most the product of the two lengths. */
export function matchesGlob(pattern: string, name: string): boolean {
  let [at, from] = [0, 0];
  let [star, mark] = [-1, 0];
  while (from < name.length) {
    if (pattern[at] === "*") {
      star = at++;
      mark = from;
    } else if (at < pattern.length && (pattern[at] === "?" || pattern[at] === name[from])) {
      at++;
      from++;
    } else if (star >= 0) {
      at = star + 1;
      from = ++mark;
    } else return false;
  }
  while (pattern[at] === "*") at++;
  return at === pattern.length;
}

/** Whether a pattern has a character that stands for others. */
export function isGlob(pattern: string): boolean {
  return /[*?]/.test(pattern);
}

/**
 * Returns whether a name is wanted. Throws `ArgumentError` if a pattern matches none of `names`; a name without `*` and `?` is
 * left to the caller unless `exact` is set.
 */
export function selectNames(
  patterns: readonly string[] | undefined,
  names: Iterable<string>,
  { exact = true }: { readonly exact?: boolean } = {},
): (name: string) => boolean {
  if (!patterns) return () => true;
  const all = [...names];
  const wanted = new Set<string>();
  for (const pattern of patterns) {
    const found = all.filter((name) => matchesGlob(pattern, name));
    if (found.length === 0 && (exact || isGlob(pattern)))
      throw new ArgumentError(`tensors: no tensor matches "${pattern}"; there are ${someNames(all)}`);
    for (const name of found) wanted.add(name);
  }
  return (name) => wanted.has(name);
}
