/** The option --tensors: names and patterns of tensors. */

import { ArgumentError } from "../../errors.js";
import { someNames } from "../../io/source.js";
import { type Option, optional } from "../options.js";
import { isGlob, matchesGlob } from "./glob.js";

/** The option --tensors of a command; `what` says what happens to the tensors. */
export function tensorsOption(what: string): Option<readonly string[] | undefined> {
  return optional({
    placeholder: "GLOB,…",
    help: `${what}; in a name, * stands for any text and ? for one character`,
    parse: (text) => text.split(","),
  });
}

/**
 * Returns whether a name is wanted. Throws `ArgumentError` if a pattern matches none of `names`; a name without `*` and `?` is
 * left to the caller unless `exact` is set.
 */
export function wantedBy(
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
      throw new ArgumentError(`--tensors: no tensor matches "${pattern}"; there are ${someNames(all)}`);
    for (const name of found) wanted.add(name);
  }
  return (name) => wanted.has(name);
}
