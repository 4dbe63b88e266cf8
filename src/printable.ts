/** Makes untrusted text safe to print in one terminal line. */

/**
 * Characters that move a cursor, end a line, change the direction of text, or cannot be printed: both kinds of control
 * characters, line and paragraph separators, bidirectional controls, invisible format characters, unpaired surrogates.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

const SHORT: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** `text` in one line, with such characters escaped as \n or \u001b. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) => SHORT[character] ?? escaped(character));
}

/** The same JSON value in printable characters; escapes appear only inside its strings. */
export function printableJson(json: string): string {
  return json.replace(UNPRINTABLE, escaped);
}

function escaped(character: string): string {
  return Array.from({ length: character.length }, (_, i) => {
    return `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`;
  }).join("");
}
