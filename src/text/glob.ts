/** Patterns of names: `*` stands for any characters, `?` for one. */

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
