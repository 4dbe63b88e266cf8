/** Decodes tokens to text: the bytes of a token, and the decoding of tokens one by one. */
import { guardReceivers } from "../../brand.js";
import { isObject, type JsonObject } from "../../io/header/header.js";
import { refusal, requireBoundedGrowth } from "./pre-tokenizer.js";

/** How a tokenizer decodes. */
export interface DecodingRule {
  /** The bytes of a token that was not added to the vocabulary. */
  readonly bytes: (token: string) => Uint8Array;
  /** The largest number of leading spaces that are removed from a text. */
  readonly strippedSpaces: number;
}

const encoder = new TextEncoder();

const isPrintable = (byte: number): boolean =>
  (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte !== 0xad);

const FIRST_SUBSTITUTE = 0x100;

/**
 * The alphabet of byte-level BPE, which writes each byte as one character. Printable bytes of Latin-1 stand for themselves, the
 * others for the characters from U+0100 on, in ascending order.
 */
export const BYTE_CHARACTERS: readonly string[] = characters();

function characters(): readonly string[] {
  let next = FIRST_SUBSTITUTE;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++));
}

const BYTES: ReadonlyMap<string, number> = new Map(
  BYTE_CHARACTERS.map((character, byte) => [character, byte]),
);

/** The bytes that a token of byte-level BPE stands for; if a character is not of the alphabet, the UTF-8 bytes of the token. */
function byteLevelBytes(token: string): Uint8Array {
  const bytes = Uint8Array.from(token, (character) => BYTES.get(character) ?? 0);
  const isOfAlphabet = Array.from(token).every((character) => BYTES.has(character));
  return isOfAlphabet ? bytes : encoder.encode(token);
}

/** Returns the rule of a decoder of tokenizer.json. Throws `UnsupportedError`, with the name, for an unsupported decoder. */
export function decodingRule(decoder: unknown): DecodingRule {
  const config = isObject(decoder) ? decoder : {};
  if (config.type === "ByteLevel") return { bytes: byteLevelBytes, strippedSpaces: 0 };
  if (config.type === "Metaspace") {
    const space = typeof config.replacement === "string" ? config.replacement : "▁";
    const bytes = (token: string): Uint8Array => encoder.encode(token.replaceAll(space, " "));
    return { bytes, strippedSpaces: config.prepend_scheme === "never" ? 0 : 1 };
  }
  if (config.type === "Sequence" && Array.isArray(config.decoders)) {
    requireBoundedGrowth("the decoder", config, "decoders");
    return sequenceRule(config.decoders);
  }
  throw refusal(`the decoder ${String(config.type)}`);
}

const BYTE_TOKEN = /^<0x[0-9A-Fa-f]{2}>$/;

/** The rule of a sequence of decoders: replacements, tokens that stand for bytes, and removal of leading spaces. */
function sequenceRule(decoders: readonly unknown[]): DecodingRule {
  const replacements: (readonly [string, string])[] = [];
  let hasByteTokens = false;
  let strippedSpaces = 0;
  for (const decoder of decoders) {
    const config: JsonObject = isObject(decoder) ? decoder : {};
    const { type, pattern, content } = config;
    const replaced = isObject(pattern) ? pattern.String : undefined;
    if (type === "Replace" && typeof replaced === "string" && typeof content === "string")
      replacements.push([replaced, content]);
    else if (type === "ByteFallback") hasByteTokens = true;
    else if (type === "Strip" && content === " " && typeof config.start === "number" && config.stop === 0)
      strippedSpaces = config.start;
    else if (type !== "Fuse") throw refusal(`the decoder ${String(type)} in a sequence`);
  }
  const bytes = (token: string): Uint8Array => {
    if (hasByteTokens && BYTE_TOKEN.test(token)) return Uint8Array.of(Number.parseInt(token.slice(3, 5), 16));
    return encoder.encode(replacements.reduce((text, [from, to]) => text.replaceAll(from, to), token));
  };
  return { bytes, strippedSpaces };
}

/** The parts of a tokenizer that a stream uses. */
export interface StreamParts {
  /** The bytes of a token; none for an id without a token. Throws `ArgumentError` for an invalid id. */
  readonly bytesOf: (id: number) => Uint8Array;
  readonly strippedSpaces: number;
}

/**
 * Decodes tokens one by one, as `Tokenizer.decodeStream` returns it. It returns a character when it has decoded the last byte.
 */
export class DecodeStream {
  readonly #bytesOf: StreamParts["bytesOf"];
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  readonly #spaces: number;
  /** The maximum number of leading spaces that are still to be removed. */
  #strippedSpaces: number;

  static {
    guardReceivers(this, (x) => typeof x === "object" && x !== null && #bytesOf in x);
  }

  private constructor({ bytesOf, strippedSpaces }: StreamParts) {
    this.#bytesOf = bytesOf;
    this.#spaces = strippedSpaces;
    this.#strippedSpaces = strippedSpaces;
  }

  /** @internal */
  static of(parts: StreamParts): DecodeStream {
    return new DecodeStream(parts);
  }

  /**
   * Returns the characters that the token completes; "" if there are none, and for an id without a token.
   *
   * @throws `ArgumentError` for anything but a whole number from 0 to 2^31 - 1.
   */
  step(id: number): string {
    return this.#stripped(this.#decoder.decode(this.#bytesOf(id), { stream: true }));
  }

  /** Ends the text; returns U+FFFD for the bytes of an incomplete character, else "". The next token begins a new text. */
  end(): string {
    const text = this.#stripped(this.#decoder.decode());
    this.#strippedSpaces = this.#spaces;
    return text;
  }

  #stripped(text: string): string {
    if (this.#strippedSpaces === 0 || text === "") return text;
    const spaces = /^ */.exec(text)?.[0].length ?? 0;
    const count = Math.min(spaces, this.#strippedSpaces);
    this.#strippedSpaces = count < text.length ? 0 : this.#strippedSpaces - count;
    return text.slice(count);
  }
}
