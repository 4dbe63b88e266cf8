/** Numbers and texts one after another in bytes, for what a file has a million of. */

/** Grows as it is written to. */
export class PackedWriter {
  #bytes = Buffer.alloc(1 << 12);
  #length = 0;

  /** Where the next value will begin. */
  get length(): number {
    return this.#length;
  }

  /** An integer from 0 to 2^53 - 1, in one byte for each 7 bits, the lowest first. */
  number(value: number): void {
    this.#reserve(8);
    let rest = value;
    for (; rest >= 128; rest = Math.floor(rest / 128)) this.#bytes[this.#length++] = (rest % 128) + 128;
    this.#bytes[this.#length++] = rest;
  }

  /** Any text, unpaired surrogates too: a byte for each code unit, or two where a unit needs them. */
  text(text: string): void {
    const wide = isWide(text);
    const size = wide ? 2 * text.length : text.length;
    this.number(2 * size + (wide ? 1 : 0));
    this.#reserve(size);
    this.#bytes.write(text, this.#length, encodingOf(wide));
    this.#length += size;
  }

  /** What was written. */
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

/** Reads values in the order and of the kinds that were written, from any of them on. */
export class PackedReader {
  /** Where the next value begins. */
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

  /** Passes over a text. */
  skipText(): void {
    this.#span();
  }

  /** Where a text begins, and whether its code units have two bytes. Goes behind it. */
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
