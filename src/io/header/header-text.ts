/** The text of a header, a piece at a time: all of it in memory would be as large as the file says. */
import { FileError } from "../../errors.js";

/** Bytes of a piece, at least; a member of the header is in one piece. */
const PIECE_BYTES = 1 << 16;

const BYTE = { quote: 0x22, comma: 0x2c, backslash: 0x5c } as const;

/** Whether a byte opens an object or an array, where no string is: both brackets differ from their letters by one bit. */
const opens = (byte: number): boolean => (byte | 0x20) === 0x7b;
const closes = (byte: number): boolean => (byte | 0x20) === 0x7d;

/**
 * Cuts a header behind commas between its members, into pieces of at least `least` bytes. Throws `FileError` where it is not
 * UTF-8, or does not begin as an object.
 */
export function* headerPieces(
  file: string,
  bytes: Uint8Array,
  least: number = PIECE_BYTES,
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
  for (const to of cuts(bytes, least)) {
    const text = decoded(from, to);
    if (from === 0 && !text.startsWith("{"))
      throw new FileError(
        `${file}: its header begins with ${JSON.stringify(text.slice(0, 1))}; it must begin with "{"`,
      );
    yield text;
    from = to;
  }
}

/** Where pieces end. In what is not JSON they end anywhere, and what reads them finds out. */
function* cuts(bytes: Uint8Array, least: number): Generator<number, undefined> {
  let depth = 0;
  let from = 0;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0;
    if (byte === BYTE.quote) at = stringEnd(bytes, at);
    else if (opens(byte)) depth++;
    else if (closes(byte)) depth--;
    else if (byte === BYTE.comma && depth === 1 && at - from >= least) {
      from = at + 1;
      yield from;
    }
  }
  yield bytes.length;
}

/** The quote that ends a string, from the one on that begins it. */
function stringEnd(bytes: Uint8Array, begin: number): number {
  let at = begin + 1;
  for (; at < bytes.length && bytes[at] !== BYTE.quote; at++) if (bytes[at] === BYTE.backslash) at++;
  return at;
}
