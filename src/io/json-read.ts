/** JSON as files have it: read strictly (unique keys, bounded nesting), and one member of the root at a time. */

/** How deep values may nest; a file that nests deeper is refused. */
export const MAX_DEPTH = 512;

/** Text that is no JSON, or none that is read here. The message says why, as what follows "its header". */
export class JsonError extends Error {}

/** A number that is not written as an integer from 0 in digits alone. */
class OtherNumber {
  constructor(private readonly text: string) {}

  toJSON(): number {
    return Number(this.text);
  }
}

type ReadNumber = (text: string) => unknown;

/** Numbers of sizes and offsets: 1.0, -0 and 1e3 are `OtherNumber`s, so that no rounding hides what was written. */
export const readDigits: ReadNumber = (text) =>
  /^(?:0|[1-9]\d{0,19})$/.test(text) ? Number(text) : new OtherNumber(text);

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** As `JSON.parse`. Throws `JsonError` for what that refuses, a repeated key, and deep nesting. */
export function parseJson(text: string): unknown {
  const reader = new JsonReader(text, Number);
  const value = reader.value(0);
  reader.end();
  return value;
}

/** The members of the object that `text` is, in its order, each read as it is asked for; keys may repeat. */
export function* jsonMembers(text: string, readNumber: ReadNumber): Generator<readonly [string, unknown]> {
  const reader = new JsonReader(text, readNumber);
  yield* reader.members(0);
  reader.end();
}

class JsonReader {
  #at = 0;

  constructor(
    private readonly text: string,
    private readonly readNumber: ReadNumber,
  ) {}

  /** Nothing but white space may follow. */
  end(): void {
    this.#space();
    if (this.#at < this.text.length) throw this.#invalid();
  }

  value(depth: number): unknown {
    this.#space();
    const next = this.text[this.#at];
    if (depth >= MAX_DEPTH && (next === "{" || next === "["))
      throw new JsonError(`nests more than ${MAX_DEPTH} deep`);
    if (next === "{") return this.#object(depth);
    if (next === "[") return this.#array(depth);
    if (next === '"') return this.#string();
    for (const [word, value] of LITERALS) if (this.#takes(word)) return value;
    return this.#number();
  }

  *members(depth: number): Generator<readonly [string, unknown]> {
    this.#need("{");
    if (this.#takes("}")) return;
    do {
      this.#space();
      const key = this.#string();
      this.#need(":");
      yield [key, this.value(depth + 1)];
    } while (this.#takes(","));
    this.#need("}");
  }

  #object(depth: number): object {
    const object: Record<string, unknown> = {};
    for (const [key, value] of this.members(depth)) {
      if (Object.hasOwn(object, key)) throw repeated(key);
      if (key === "__proto__") setOwn(object, key, value);
      else object[key] = value;
    }
    return object;
  }

  #array(depth: number): unknown[] {
    const array: unknown[] = [];
    this.#need("[");
    if (this.#takes("]")) return array;
    do array.push(this.value(depth + 1));
    while (this.#takes(","));
    this.#need("]");
    return array;
  }

  #string(): string {
    const begin = this.#at;
    if (this.text.charCodeAt(begin) !== QUOTE) throw this.#invalid();
    for (let at = begin + 1; at < this.text.length; at++) {
      const code = this.text.charCodeAt(at);
      if (code === BACKSLASH) at++;
      else if (code === QUOTE) {
        this.#at = at + 1;
        return this.#parsed(begin) as string;
      }
    }
    throw this.#invalid();
  }

  #number(): unknown {
    const begin = this.#at;
    while (isNumeric(this.text.charCodeAt(this.#at))) this.#at++;
    this.#parsed(begin);
    return this.readNumber(this.text.slice(begin, this.#at));
  }

  /** What `JSON.parse` makes of the text from `begin` up to here: it knows escapes and the grammar of numbers. */
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

  #takes(word: string): boolean {
    this.#space();
    if (!this.text.startsWith(word, this.#at)) return false;
    this.#at += word.length;
    return true;
  }

  #need(word: string): void {
    if (!this.#takes(word)) throw this.#invalid();
  }

  #invalid(): JsonError {
    const what = this.text[this.#at];
    const found = what === undefined ? "ends too soon" : `has ${JSON.stringify(what)} at ${this.#at}`;
    return new JsonError(`is not valid JSON: it ${found}`);
  }
}

const LITERALS = [
  ["true", true],
  ["false", false],
  ["null", null],
] as const;

/** Digits, signs, dots and exponents. */
function isNumeric(code: number): boolean {
  return (
    (code >= 0x30 && code <= 0x39) ||
    code === 0x2b ||
    code === 0x2d ||
    code === 0x2e ||
    (code | 0x20) === 0x65
  );
}

/** An own member where an assignment would make none. */
function setOwn(object: object, key: string, value: unknown): void {
  Object.defineProperty(object, key, { value, writable: true, enumerable: true, configurable: true });
}

/** The error of an object that has a key twice. */
export function repeated(key: string): JsonError {
  return new JsonError(`has the key ${JSON.stringify(key)} twice; keys must be unique`);
}
