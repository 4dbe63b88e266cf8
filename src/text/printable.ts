/** Escaping of untrusted text, so that it is safe to print in one line of a terminal. */

/**
 * Characters that may move the cursor, end the line, change the text direction, or cannot be printed. They are the control
 * characters (C0 and C1), line and paragraph separators, format characters such as bidirectional controls, and unpaired
 * surrogates.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

const SHORT: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** Returns `text` in one line: each unprintable character is escaped, as \n or \u001b. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) => SHORT[character] ?? escaped(character));
}

/** Returns the same JSON value with unprintable characters escaped. In valid JSON they occur only inside strings. */
export function printableJson(json: string): string {
  return json.replace(UNPRINTABLE, escaped);
}

function escaped(character: string): string {
  return Array.from({ length: character.length }, (_, i) => {
    return `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`;
  }).join("");
}
