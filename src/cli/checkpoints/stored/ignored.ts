/** Whether a configuration leaves a module unquantized. */
import { matchesGlob } from "../glob.js";

const REGULAR = "re:";

/**
 * Whether a pattern of a configuration covers a module: a name, the last part of one, the name of a module around it, a pattern
 * with `*`, or a regular expression after "re:". Of expressions only `.*`, `.`, `\.`, `^` and `$` are interpreted, because others
 * may take exponential time; one with more is undefined.
 */
function covers(pattern: string, module: string): boolean | undefined {
  if (pattern.startsWith(REGULAR)) {
    const glob = globOf(pattern.slice(REGULAR.length));
    return glob === undefined ? undefined : matchesGlob(glob, module);
  }
  if (matchesGlob(pattern, module) || module.startsWith(`${pattern}.`) || matchesGlob(`${pattern}.*`, module))
    return true;
  return module.endsWith(`.${pattern}`) || `.${module}.`.includes(`.${pattern}.`);
}

/** The pattern with `*` and `?` that says the same as a regular expression; undefined if there is none. */
function globOf(expression: string): string | undefined {
  const whole = expression.replace(/^\^/, "");
  const ends = whole.endsWith("$");
  const body = ends ? whole.slice(0, -1) : `${whole}.*`;
  const text = body.replace(/\\\.|\.\*|\./g, (part) => (part === "." ? "?" : part === ".*" ? "*" : "\u0000"));
  if (/[\\[\](){}|+^$]/.test(text)) return undefined;
  return text.replaceAll("\u0000", ".");
}

/** Whether a module is ignored by one of the patterns; undefined if a pattern was not understood and no other covers it. */
export function isIgnored(patterns: readonly string[], module: string): boolean | undefined {
  const each = patterns.map((pattern) => covers(pattern, module));
  return each.includes(true) ? true : each.includes(undefined) ? undefined : false;
}
