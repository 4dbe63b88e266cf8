/** Patterns of names: `*` stands for any characters, `?` for one. */
import { ArgumentError } from "../errors.js";
import { someNames } from "../io/source.js";

/** Whether the pattern matches the full name. The time is at most the product of the two lengths. */
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

/** Whether a pattern has a wildcard. */
export function isGlob(pattern: string): boolean {
  return /[*?]/.test(pattern);
}

/**
 * Returns a predicate that tells whether a name matches one of the patterns; without patterns every name does. Throws
 * `ArgumentError` if a pattern matches none of `names`; with `exact: false`, only patterns with a wildcard have to match.
 */
export function selectNames(
  patterns: readonly string[] | undefined,
  names: Iterable<string>,
  { exact = true }: { readonly exact?: boolean } = {},
): (name: string) => boolean {
  if (!patterns) return () => true;
  const all = [...names];
  const selected = new Set<string>();
  for (const pattern of patterns) {
    const matches = all.filter((name) => matchesGlob(pattern, name));
    if (matches.length === 0 && (exact || isGlob(pattern)))
      throw new ArgumentError(`tensors: no tensor matches "${pattern}"; there are ${someNames(all)}`);
    for (const name of matches) selected.add(name);
  }
  return (name) => selected.has(name);
}
