/**
 * Divides the JSON of a header into pieces, because decoding all of it at once would need as much memory as the header's length
 * field claims.
 */
import { FileError } from "../../errors.js";

/** The minimum number of bytes of a piece. Each member of the header is within one piece. */
const PIECE_BYTES = 1 << 16;

const BYTE = { quote: 0x22, comma: 0x2c, backslash: 0x5c } as const;

/** Whether a byte outside strings opens an object or an array. The codes of `{` and `[` differ only in bit 5. */
const opens = (byte: number): boolean => (byte | 0x20) === 0x7b;
const closes = (byte: number): boolean => (byte | 0x20) === 0x7d;

/**
 * Divides a header into pieces of at least `least` bytes, which end after commas between members. Throws `FileError` if the
 * header is not UTF-8 or does not begin with an object.
 */
export function* headerPieces(
  file: string,
  bytes: Uint8Array,
  minBytes: number = PIECE_BYTES,
): Generator<string, undefined> {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const decoded = (from: number, to: number): string => {
    try {
      return decoder.decode(bytes.subarray(from, to));
    } catch (cause) {
      throw new FileError(`${file}: its header is not UTF-8; safetensors headers are JSON in UTF-8`, {
        cause,
      });
    }
  };
  let from = 0;
  for (const to of cuts(bytes, minBytes)) {
    const text = decoded(from, to);
    if (from === 0 && !text.startsWith("{"))
      throw new FileError(
        `${file}: its header begins with ${JSON.stringify(text.slice(0, 1))}; it must begin with "{"`,
      );
    yield text;
    from = to;
  }
}

/** The positions where pieces end. For invalid JSON they are arbitrary; the parser then reports the error. */
function* cuts(bytes: Uint8Array, minBytes: number): Generator<number, undefined> {
  let depth = 0;
  let from = 0;
  for (let position = 0; position < bytes.length; position++) {
    const byte = bytes[position] ?? 0;
    if (byte === BYTE.quote) position = stringEnd(bytes, position);
    else if (opens(byte)) depth++;
    else if (closes(byte)) depth--;
    else if (byte === BYTE.comma && depth === 1 && position - from >= minBytes) {
      from = position + 1;
      yield from;
    }
  }
  yield bytes.length;
}

/** Returns the position of the quote that ends the string which begins at `begin`. */
function stringEnd(bytes: Uint8Array, begin: number): number {
  let position = begin + 1;
  for (; position < bytes.length && bytes[position] !== BYTE.quote; position++)
    if (bytes[position] === BYTE.backslash) position++;
  return position;
}
