/**
 * A strict JSON reader for files: keys are unique, nesting is limited, and the root's members are read one at a time.
 */
import { shownJson } from "./json-shown.js";

/** The maximum nesting depth of values. */
export const MAX_DEPTH = 512;

/**
 * An error of the reader: the text is not JSON, or is JSON that the reader does not accept. The message continues a sentence that
 * begins with "its header".
 */
export class JsonError extends Error {}

/** A number that is not written with digits only, such as 1.0, -0 or 1e3. */
class OtherNumber {
  constructor(private readonly text: string) {}

  toJSON(): number {
    return Number(this.text);
  }
}

type ReadNumber = (text: string) => unknown;

const DIGITS = /^(?:0|[1-9]\d{0,19})$/;

/**
 * Reads the numbers of sizes and offsets. A number that is not written with digits only becomes an `OtherNumber`, so that
 * rounding cannot turn it into a valid size.
 */
export const readDigits: ReadNumber = (text) => (DIGITS.test(text) ? Number(text) : new OtherNumber(text));

const CODE = { quote: 0x22, comma: 0x2c, colon: 0x3a, backslash: 0x5c } as const;
const OPEN = { object: 0x7b, array: 0x5b } as const;
const CLOSE = { object: 0x7d, array: 0x5d } as const;

/**
 * Parses JSON as `JSON.parse` does; `readNumber` converts the digits of a number to its value. Throws `JsonError` for invalid
 * JSON, a repeated key, or nesting beyond MAX_DEPTH.
 */
export function parseJson(text: string, readNumber: ReadNumber = Number): unknown {
  const reader = new JsonReader(text, readNumber);
  const value = reader.value(0);
  reader.end();
  return value;
}

/**
 * Yields the members of a JSON object in order. `pieces` are consecutive parts of its text; every piece except the last ends with
 * a comma between two members (`headerPieces`). A member is parsed when it is requested. Keys may repeat.
 */
export function* jsonMembers(
  pieces: Iterator<string, unknown>,
  readNumber: ReadNumber,
): Generator<readonly [string, unknown]> {
  const reader = new JsonReader("", readNumber, pieces);
  yield* reader.members();
  reader.end();
}

class JsonReader {
  #at = 0;
  /** The number of characters in earlier pieces. */
  #before = 0;

  constructor(
    private text: string,
    private readonly readNumber: ReadNumber,
    private readonly pieces?: Iterator<string, unknown>,
  ) {}

  /** Checks that only white space follows. */
  end(): void {
    this.#space();
    if (this.#at < this.text.length) throw this.#invalid();
  }

  value(depth: number): unknown {
    this.#space();
    const next = this.text.charCodeAt(this.#at);
    if (depth >= MAX_DEPTH && (next === OPEN.object || next === OPEN.array))
      throw new JsonError(`nests more than ${MAX_DEPTH} deep`);
    if (next === OPEN.object) return this.#object(depth);
    if (next === OPEN.array) return this.#array(depth);
    if (next === CODE.quote) return this.#string();
    for (const [word, value] of LITERALS) {
      if (!this.text.startsWith(word, this.#at)) continue;
      this.#at += word.length;
      return value;
    }
    return this.#number();
  }

  *members(): Generator<readonly [string, unknown]> {
    this.#nextPiece();
    this.#need(OPEN.object);
    if (this.#takes(CLOSE.object)) return;
    do {
      if (this.#at === this.text.length) this.#nextPiece();
      yield [this.#key(), this.value(1)];
    } while (this.#takes(CODE.comma));
    this.#need(CLOSE.object);
  }

  #nextPiece(): void {
    const next = this.pieces?.next();
    if (!next || next.done) return;
    this.#before += this.#at;
    this.#at = 0;
    this.text = next.value;
  }

  #object(depth: number): object {
    const object: Record<string, unknown> = {};
    this.#need(OPEN.object);
    if (this.#takes(CLOSE.object)) return object;
    do {
      const key = this.#key();
      const value = this.value(depth + 1);
      if (Object.hasOwn(object, key)) throw repeated(key);
      if (key === "__proto__") setOwn(object, key, value);
      else object[key] = value;
    } while (this.#takes(CODE.comma));
    this.#need(CLOSE.object);
    return object;
  }

  #array(depth: number): unknown[] {
    const array: unknown[] = [];
    this.#need(OPEN.array);
    if (this.#takes(CLOSE.array)) return array;
    do array.push(this.value(depth + 1));
    while (this.#takes(CODE.comma));
    this.#need(CLOSE.array);
    return array;
  }

  /** Reads the key of a member and the colon after it. */
  #key(): string {
    this.#space();
    const key = this.#string();
    this.#need(CODE.colon);
    return key;
  }

  #string(): string {
    const begin = this.#at;
    if (this.text.charCodeAt(begin) !== CODE.quote) throw this.#invalid();
    let plain = true;
    for (let at = begin + 1; at < this.text.length; at++) {
      const code = this.text.charCodeAt(at);
      if (code === CODE.quote) {
        this.#at = at + 1;
        // V8 represents a longer substring as a reference to the whole text, which would keep the text in memory
        return plain && at - begin <= SHORT
          ? this.text.slice(begin + 1, at)
          : (this.#parsed(begin) as string);
      }
      if (code === CODE.backslash) at++;
      if (code === CODE.backslash || code < 0x20) plain = false;
    }
    throw this.#invalid();
  }

  #number(): unknown {
    const begin = this.#at;
    while (isNumeric(this.text.charCodeAt(this.#at))) this.#at++;
    const text = this.text.slice(begin, this.#at);
    if (!DIGITS.test(text)) this.#parsed(begin);
    return this.readNumber(text);
  }

  /**
   * Returns `JSON.parse` of the text from `begin` to the current position. JSON.parse handles escapes and the grammar of numbers.
   */
  #parsed(begin: number): unknown {
    try {
      return JSON.parse(this.text.slice(begin, this.#at));
    } catch {
      this.#at = begin;
      throw this.#invalid();
    }
  }

  #space(): void {
    for (;;) {
      const code = this.text.charCodeAt(this.#at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      this.#at++;
    }
  }

  #takes(code: number): boolean {
    this.#space();
    if (this.text.charCodeAt(this.#at) !== code) return false;
    this.#at++;
    return true;
  }

  #need(code: number): void {
    if (!this.#takes(code)) throw this.#invalid();
  }

  #invalid(): JsonError {
    const character = this.text[this.#at];
    const problem =
      character === undefined
        ? "ends too soon"
        : `has ${JSON.stringify(character)} at ${this.#before + this.#at}`;
    return new JsonError(`is not valid JSON: it ${problem}`);
  }
}

/** The maximum length of a substring that V8 copies instead of referring to the original string. */
const SHORT = 12;

const LITERALS = [
  ["true", true],
  ["false", false],
  ["null", null],
] as const;

/** Whether a character can be part of a number: a digit, a sign, a dot or an exponent letter. */
function isNumeric(code: number): boolean {
  return (
    (code >= 0x30 && code <= 0x39) ||
    code === 0x2b ||
    code === 0x2d ||
    code === 0x2e ||
    (code | 0x20) === 0x65
  );
}

/** Defines an own property. Assignment would not do that for the key `__proto__`. */
export function setOwn(object: object, key: string, value: unknown): void {
  Object.defineProperty(object, key, { value, writable: true, enumerable: true, configurable: true });
}

/** The error for an object with a repeated key. */
export function repeated(key: string): JsonError {
  return new JsonError(`has the key ${shownJson(key)} twice; keys must be unique`);
}
