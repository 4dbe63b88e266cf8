/** Compact storage of numbers and texts, for headers with a million tensors. */

/** A byte buffer that grows as values are written. */
export class PackedWriter {
  #bytes = Buffer.alloc(1 << 12);
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

  /** Writes a text, which may contain unpaired surrogates: one byte per UTF-16 code unit, or two if a unit exceeds 255. */
  text(text: string): void {
    const wide = isWide(text);
    const size = wide ? 2 * text.length : text.length;
    this.number(2 * size + (wide ? 1 : 0));
    this.#reserve(size);
    this.#bytes.write(text, this.#length, encodingOf(wide));
    this.#length += size;
  }

  /** Ends the writing, and returns a reader of the values. */
  end(): PackedReader {
    return new PackedReader(Buffer.from(this.#bytes.subarray(0, this.#length)));
  }

  #reserve(count: number): void {
    if (this.#length + count <= this.#bytes.length) return;
    const grown = Buffer.alloc(2 * this.#bytes.length + count);
    grown.set(this.#bytes);
    this.#bytes = grown;
  }
}

/** Reads values. It can start at any value, and must read the kinds of values that were written. */
export class PackedReader {
  /** The position of the next value. */
  at = 0;

  constructor(private readonly bytes: Buffer) {}

  number(): number {
    let value = 0;
    for (let unit = 1; ; unit *= 128) {
      const byte = this.bytes[this.at++] ?? 0;
      if (byte < 128) return value + byte * unit;
      value += (byte - 128) * unit;
    }
  }

  text(): string {
    const [begin, wide] = this.#span();
    return this.bytes.toString(encodingOf(wide), begin, this.at);
  }

  /** Skips a text. */
  skipText(): void {
    this.#span();
  }

  /** Reads the length of a text and skips the text. Returns where it begins, and whether its code units have two bytes. */
  #span(): readonly [number, boolean] {
    const head = this.number();
    const begin = this.at;
    this.at += Math.floor(head / 2);
    return [begin, head % 2 === 1];
  }
}

function isWide(text: string): boolean {
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 0xff) return true;
  return false;
}

function encodingOf(wide: boolean): "latin1" | "utf16le" {
  return wide ? "utf16le" : "latin1";
}
