/** Selection of names by patterns. */
import { ArgumentError } from "../errors.js";
import { someNames } from "../io/source.js";
import { isGlob, matchesGlob } from "../text/glob.js";

/**
 * Returns a predicate that tells whether a name matches one of the patterns. Without patterns, every name matches. Throws
 * `ArgumentError` if a pattern matches none of `names`; with `exact: false`, only patterns with a wildcard have to match.
 */
export function selectNames(
  patterns: readonly string[] | undefined,
  names: Iterable<string>,
  { exact = true }: { readonly exact?: boolean } = {},
): (name: string) => boolean {
  if (!patterns) return () => true;
  const nameList = [...names];
  const selected = new Set<string>();
  for (const pattern of patterns) {
    const matches = nameList.filter((name) => matchesGlob(pattern, name));
    if (matches.length === 0 && (exact || isGlob(pattern)))
      throw new ArgumentError(`tensors: no tensor matches "${pattern}"; there are ${someNames(nameList)}`);
    for (const name of matches) selected.add(name);
  }
  return (name) => selected.has(name);
}
