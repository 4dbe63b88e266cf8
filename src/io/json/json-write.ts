/** Writes a caller's value as JSON. It rejects values that reading the JSON would not restore exactly. */
import { ArgumentError } from "../../errors.js";
import { MAX_HEADER_BYTES } from "../limits.js";
import { MAX_DEPTH } from "./json-read.js";

/** The maximum nesting depth of a value. It is less than MAX_DEPTH, because the value is nested in a record. */
const MAX_VALUE_DEPTH = MAX_DEPTH - 12;

/**
 * Returns the JSON of `value`; errors refer to the value as `name`. -0 is preserved. `toJSON` is not called. Throws
 * `ArgumentError` for everything that JSON does not restore: `undefined`, functions, symbols, bigints, NaN and infinities,
 * instances of classes, objects without a prototype, sparse arrays and arrays with other properties, symbol keys, accessors and
 * non-enumerable properties. It also throws for values that contain themselves, that are nested more than 500 deep, or whose text
 * is longer than a header may be.
 */
export function jsonText(name: string, value: unknown): string {
  const writer = new JsonWriter(name);
  writer.write(value);
  return writer.text;
}

class JsonWriter {
  readonly #parts: string[] = [];
  #length = 0;
  readonly #open: object[] = [];
  /** The path from the root to the current value: the index in each array, the key in each object. */
  readonly #path: (string | number)[] = [];

  constructor(private readonly name: string) {}

  get text(): string {
    return this.#parts.join("");
  }

  write(value: unknown): void {
    if (typeof value === "string") this.#add(JSON.stringify(value));
    else if (value === null || typeof value === "boolean") this.#add(String(value));
    else if (typeof value === "number" && Number.isFinite(value)) this.#add(numberText(value));
    else if (Array.isArray(value)) this.#within(value, () => this.#array(value));
    else if (typeof value === "object") this.#within(value, () => this.#object(value));
    else throw this.#refused(`is ${typeof value} ${String(value).slice(0, 40)}`);
  }

  #within(value: object, body: () => void): void {
    if (this.#open.includes(value)) throw this.#refused("contains itself");
    if (this.#open.length >= MAX_VALUE_DEPTH) throw this.#refused(`nests more than ${MAX_VALUE_DEPTH} deep`);
    this.#open.push(value);
    body();
    this.#open.pop();
  }

  #array(array: readonly unknown[]): void {
    if (Object.getPrototypeOf(array) !== Array.prototype) throw this.#refused("is an array of another class");
    this.#add("[");
    for (let i = 0; i < array.length; i++) this.#member(array, i, i > 0 ? "," : "");
    this.#add("]");
    // the own properties of an array are its elements and "length"
    if (Reflect.ownKeys(array).length !== array.length + 1)
      throw this.#refused("has members beside its elements");
  }

  #object(object: object): void {
    if (Object.getPrototypeOf(object) !== Object.prototype)
      throw this.#refused(`is object ${className(object)}`);
    this.#add("{");
    let separator = "";
    for (const key of Reflect.ownKeys(object)) {
      if (typeof key === "symbol") throw this.#refused(`has the key ${String(key)}`);
      this.#member(object, key, `${separator}${JSON.stringify(key)}:`);
      separator = ",";
    }
    this.#add("}");
  }

  #member(object: object, key: string | number, before: string): void {
    const member = Object.getOwnPropertyDescriptor(object, key);
    if (!member) throw this.#refused(`has nothing at ${key}`);
    if (!("value" in member)) throw this.#refused(`has an accessor, "${key}"`);
    if (!member.enumerable) throw this.#refused(`has a hidden member, "${key}"`);
    this.#add(before);
    this.#path.push(key);
    this.write(member.value);
    this.#path.pop();
  }

  #add(text: string): void {
    this.#parts.push(text);
    this.#length += text.length;
    if (this.#length > MAX_HEADER_BYTES)
      throw this.#refused(`makes more than the ${MAX_HEADER_BYTES} bytes that a file's header may have`);
  }

  #refused(why: string): ArgumentError {
    const steps = this.#path.map((key) => (typeof key === "number" ? `[${key}]` : `.${key.slice(0, 40)}`));
    const shown = steps.length > 16 ? [...steps.slice(0, 8), "…", ...steps.slice(-8)] : steps;
    return new ArgumentError(
      `checkpoint: ${this.name}${shown.join("")} ${why}, which JSON does not hold; give null, booleans, strings, finite numbers, lists and plain objects`,
    );
  }
}

function numberText(value: number): string {
  return Object.is(value, -0) ? "-0" : String(value);
}

function className(object: object): string {
  const prototype: unknown = Object.getPrototypeOf(object);
  if (prototype === null) return "without a prototype";
  const maker: unknown = (prototype as { readonly constructor?: unknown }).constructor;
  return `of class ${typeof maker === "function" ? maker.name : "unknown"}`;
}
