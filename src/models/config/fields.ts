/** Reads the fields of a model's configuration. */
import { FileError } from "../../errors.js";
import { isObject, type JsonObject } from "../../io/json/json-object.js";
import { describe } from "../../options.js";

/** A configuration, whose fields are checked when they are read. Each method throws `FileError` for an invalid value. */
export class ConfigFields {
  constructor(
    /** The name of the file, for errors. */
    readonly path: string,
    private readonly json: JsonObject,
    /** The names of fields in the file, for errors. Default: the names that callers pass. */
    private readonly keys?: ReadonlyMap<string, string>,
  ) {}

  /** The value of a field. JSON's null counts as absent. */
  value(name: string): unknown {
    return this.json[name] ?? undefined;
  }

  /** Whether a field is JSON's null, where a family distinguishes it from an absent field. */
  isNull(name: string): boolean {
    return this.json[name] === null;
  }

  /** An integer of at least `least`. */
  integer(name: string, fallback?: number, least = 1): number {
    const isValid = (value: unknown): value is number =>
      typeof value === "number" && Number.isSafeInteger(value) && value >= least;
    return this.#field(name, fallback, isValid, `a whole number from ${least}`);
  }

  /** A finite number above 0. */
  positiveNumber(name: string, fallback?: number): number {
    const isValid = (value: unknown): value is number =>
      typeof value === "number" && Number.isFinite(value) && value > 0;
    return this.#field(name, fallback, isValid, "a number above 0");
  }

  flag(name: string, fallback?: boolean): boolean {
    return this.#field(name, fallback, (value) => typeof value === "boolean", "true or false");
  }

  text(name: string, fallback?: string): string {
    return this.#field(name, fallback, (value) => typeof value === "string", "a string");
  }

  /** The integers of a field that has one integer or a list of them; none if the field is absent. */
  integers(name: string): readonly number[] {
    const value = this.value(name) ?? [];
    const list: readonly unknown[] = Array.isArray(value) ? value : [value];
    const isIndex = (each: unknown): each is number => Number.isSafeInteger(each) && (each as number) >= 0;
    if (list.every(isIndex)) return list;
    throw this.refuse(name, "a whole number from 0, or a list of them");
  }

  /** The fields of an object; undefined if it is absent. */
  object(name: string): ConfigFields | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (!isObject(value)) throw this.refuse(name, "an object");
    const path = this.keys ? this.path : `${this.path}, ${name}`;
    return new ConfigFields(path, value, this.keys);
  }

  /** The error for a field with an invalid value. */
  refuse(name: string, needed: string): FileError {
    const value = this.value(name);
    const actual = value === undefined ? "is missing" : `is ${describe(value)}`;
    return new FileError(`${this.path}: ${this.keys?.get(name) ?? name} ${actual}; it must be ${needed}`);
  }

  #field<T>(
    name: string,
    fallback: T | undefined,
    isValid: (value: unknown) => value is T,
    needed: string,
  ): T {
    const value = this.value(name) ?? fallback;
    if (isValid(value)) return value;
    throw this.refuse(name, needed);
  }
}
