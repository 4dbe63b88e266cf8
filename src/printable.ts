/** Text from anywhere, made fit for one line of a terminal. */

/**
 * What moves a cursor, ends a line, turns the direction of text, or cannot be printed: control characters of both kinds, line
 * and paragraph separators, bidirectional controls, invisible format characters, halves of surrogate pairs.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

const SHORT: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** `text` in one line, with escapes such as \n and \u001b for what would do something to a terminal. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) => SHORT[character] ?? escaped(character));
}

/** The same value as JSON text of printable characters: escapes stand only where JSON has them, in its texts. */
export function printableJson(json: string): string {
  return json.replace(UNPRINTABLE, escaped);
}

function escaped(character: string): string {
  return Array.from({ length: character.length }, (_, i) => {
    return `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`;
  }).join("");
}
