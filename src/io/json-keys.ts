/** The one thing JSON.parse does not tell: whether an object repeats a key. */

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]/g;

/** The first key that an object in `text` has twice. `text` must be valid JSON. */
export function repeatedKey(text: string): string | undefined {
  const open: (Set<string> | undefined)[] = [];
  let last = "";
  for (const [token] of text.matchAll(TOKENS)) {
    if (token === "{") open.push(new Set());
    else if (token === "[") open.push(undefined);
    else if (token === "}" || token === "]") open.pop();
    else if (token === ":") {
      const key = JSON.parse(last) as string;
      if (open.at(-1)?.has(key)) return key;
      open.at(-1)?.add(key);
    }
    last = token;
  }
  return undefined;
}
