/** Whether a configuration leaves a module unquantized. */
import { matchesGlob } from "../../glob.js";
import { matchesStart } from "./regex.js";

const REGULAR = "re:";

/**
 * Whether a pattern of a configuration covers a module: a name, the last part of one, the name of a module around it, a pattern
 * with `*`, or a regular expression after "re:"; undefined for an expression that is not understood.
 */
function covers(pattern: string, module: string): boolean | undefined {
  if (pattern.startsWith(REGULAR)) return matchesStart(pattern.slice(REGULAR.length), module);
  if (matchesGlob(pattern, module) || module.startsWith(`${pattern}.`) || matchesGlob(`${pattern}.*`, module))
    return true;
  return module.endsWith(`.${pattern}`) || `.${module}.`.includes(`.${pattern}.`);
}

/** Whether a module is ignored by one of the patterns; undefined if a pattern was not understood and no other covers it. */
export function isIgnored(patterns: readonly string[], module: string): boolean | undefined {
  const each = patterns.map((pattern) => covers(pattern, module));
  return each.includes(true) ? true : each.includes(undefined) ? undefined : false;
}
