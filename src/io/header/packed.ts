/** Compact storage of numbers and strings, for headers with a million tensors. */

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder();

/** A byte buffer that grows as values are written. */
export class PackedWriter {
  #bytes = new Uint8Array(0);
  #length = 0;

  /** The position where the next value will begin. */
  get length(): number {
    return this.#length;
  }

  /** Writes an integer from 0 to 2^53 - 1: 7 bits per byte, lowest first. */
  number(value: number): void {
    this.#reserve(8);
    let rest = value;
    for (; rest >= 128; rest = Math.floor(rest / 128)) this.#bytes[this.#length++] = (rest % 128) + 128;
    this.#bytes[this.#length++] = rest;
  }

  /** Writes a string, which may contain unpaired surrogates: one byte per UTF-16 code unit if all are ASCII, else two. */
  string(string: string): void {
    const wide = isWide(string);
    const size = wide ? 2 * string.length : string.length;
    this.number(2 * size + (wide ? 1 : 0));
    this.#reserve(size);
    const target = this.#bytes.subarray(this.#length, this.#length + size);
    if (wide) writeUnits(string, target);
    else ENCODER.encodeInto(string, target);
    this.#length += size;
  }

  /** Ends the writing, and returns a reader of the values. */
  end(): PackedReader {
    return new PackedReader(this.#bytes.slice(0, this.#length));
  }

  #reserve(count: number): void {
    if (this.#length + count <= this.#bytes.length) return;
    const grown = new Uint8Array(2 * this.#bytes.length + count);
    grown.set(this.#bytes);
    this.#bytes = grown;
  }
}

/** Reads values. It can start at any value, and must read the kinds of values that were written. */
export class PackedReader {
  /** The position of the next value. */
  position = 0;

  constructor(private readonly bytes: Uint8Array) {}

  number(): number {
    let value = 0;
    for (let unit = 1; ; unit *= 128) {
      const byte = this.bytes[this.position++] ?? 0;
      if (byte < 128) return value + byte * unit;
      value += (byte - 128) * unit;
    }
  }

  string(): string {
    const [begin, wide] = this.#span();
    const bytes = this.bytes.subarray(begin, this.position);
    return wide ? readUnits(bytes) : DECODER.decode(bytes);
  }

  /** Skips a string. */
  skipString(): void {
    this.#span();
  }

  /** Reads the length of a string and skips it. Returns its position, and whether its code units have two bytes. */
  #span(): readonly [number, boolean] {
    const head = this.number();
    const begin = this.position;
    this.position += Math.floor(head / 2);
    return [begin, head % 2 === 1];
  }
}

function isWide(text: string): boolean {
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 0x7f) return true;
  return false;
}

/** Writes code units, the low byte first. */
function writeUnits(text: string, target: Uint8Array): void {
  for (let i = 0; i < text.length; i++) {
    target[2 * i] = text.charCodeAt(i) & 0xff;
    target[2 * i + 1] = text.charCodeAt(i) >> 8;
  }
}

/** The maximum number of code units that one call of `String.fromCharCode` converts. */
const UNITS_AT_ONCE = 4096;

/** Reads code units. Unlike a decoder of UTF-16, it keeps unpaired surrogates. */
function readUnits(bytes: Uint8Array): string {
  const units = Uint16Array.from(
    { length: bytes.length / 2 },
    (_, i) => (bytes[2 * i] ?? 0) | ((bytes[2 * i + 1] ?? 0) << 8),
  );
  let text = "";
  for (let i = 0; i < units.length; i += UNITS_AT_ONCE)
    text += String.fromCharCode(...units.subarray(i, i + UNITS_AT_ONCE));
  return text;
}
