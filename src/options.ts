/**
 * Checks of arguments. An options table has a check for each option; unknown options, null, wrong types and values out of range
 * are rejected. A `Domain` is the check of a single value.
 */
import { unwrapHint } from "./brand.js";
import { ArgumentError } from "./errors.js";
import { distance } from "./text/nearest.js";

/** What a check returns: anything but undefined, so that a check that returns nothing is a type error. */
type Kept = NonNullable<unknown> | null;

/**
 * A check that throws unless `value` is valid. It returns the value to use from then on: the value itself, or the library's own
 * copy of an object or array, each of whose properties was read once. `caller` is the name of the called function and `name` the
 * name of the argument, for the message.
 */
export type Domain = (caller: string, name: string, value: unknown) => Kept;

/** A required option, with its check. */
export interface Needed {
  readonly needed: Domain;
}

/** A check for every option of T. Required options are marked by `needed`. */
export type OptionTable<T> = {
  readonly [K in keyof T]-?: Partial<Pick<T, K>> extends Pick<T, K> ? Domain : Needed;
};

/**
 * A check of an options object. It returns the library's own copy, for which each option was read once: a caller's object may
 * have accessors or be a proxy, so it is not read again. `name` is the name of the object in messages; without it, messages
 * name only the option.
 */
export type OptionCheck<T> = <O extends T>(caller: string, options: O, name?: string) => O;

/** Options that may each be absent or `undefined`. */
export type Given<T> = { readonly [K in keyof T]?: T[K] | undefined };

/** Options that are all present. */
export type Complete<T> = { readonly [K in keyof T]-?: Exclude<T[K], undefined> };

/** Marks an option as required. */
export function needed(domain: Domain): Needed {
  return { needed: domain };
}

/**
 * Returns a check of options objects. An option with value `undefined` counts as absent. The check throws `ArgumentError` for
 * anything but a plain object, for an unknown option (the message suggests the nearest name), for a missing required option, and
 * for an option whose accessor throws. `argument` is the name of the parameter, for the message about a value that is no such
 * object.
 */
export function optionsOf<T>(table: OptionTable<T>, argument = "options"): OptionCheck<T> {
  const rows = new Map<string, Domain | Needed>(Object.entries(table));
  const domains: Record<string, Domain | undefined> = Object.create(null);
  for (const [key, row] of rows) domains[key] = typeof row === "function" ? row : row.needed;
  const requiredKeys = [...rows].flatMap(([key, row]) => (typeof row === "function" ? [] : [key]));
  return <O extends T>(caller: string, options: O, name?: string): O => {
    requirePlain(caller, name ?? argument, options, rows.keys());
    const path = name === undefined ? "" : `${name}.`;
    const copy: Record<string, unknown> = {};
    const unknown = readInto(copy, caller, name ?? argument, options as object, domains);
    if (unknown !== undefined) throw unknownKey(caller, path, unknown, rows.keys());
    for (const key in copy) copy[key] = (domains[key] as Domain)(caller, path + key, copy[key]);
    for (const key of requiredKeys) {
      if (copy[key] === undefined) throw new ArgumentError(`${caller}: ${path}${key} is missing; give it`);
    }
    // every key of O is a key of the table
    return copy as O;
  };
}

/**
 * Reads each option once, into `copy`. Returns the first unknown key, if there is one. Nothing else reads a caller's object.
 */
function readInto(
  copy: Record<string, unknown>,
  caller: string,
  name: string,
  options: object,
  domains: Readonly<Record<string, Domain | undefined>>,
): string | undefined {
  try {
    for (const key in options) {
      if (!domains[key]) return key;
      const value: unknown = Reflect.get(options, key);
      if (value !== undefined) copy[key] = value;
    }
    return undefined;
  } catch (cause) {
    throw unreadable(caller, name, cause);
  }
}

/** The error for an argument whose accessor, or whose proxy, throws. */
function unreadable(caller: string, name: string, cause: unknown): ArgumentError {
  return new ArgumentError(
    `${caller}: ${name} cannot be read, because its accessor or proxy throws; give a plain value`,
    {
      cause,
    },
  );
}

/**
 * Returns the options of `options` that are in the table, without others, for a base class that checks only its own. Each is read
 * once; one that is undefined is left out.
 */
export function fieldsOf<T>(caller: string, options: object, table: OptionTable<T>): T {
  const fields: Record<string, unknown> = {};
  try {
    for (const key in table) {
      const value: unknown = Reflect.get(Object(options) as object, key);
      if (value !== undefined) fields[key] = value;
    }
  } catch (cause) {
    throw unreadable(caller, "options", cause);
  }
  return fields as T;
}

/**
 * Returns a property of a caller's object with methods, such as a group, or undefined for anything that has none. Throws
 * `ArgumentError` if it cannot be read.
 */
export function fieldOf(caller: string, name: string, options: unknown, key: string): unknown {
  try {
    return options === undefined || options === null
      ? undefined
      : Reflect.get(Object(options) as object, key);
  } catch (cause) {
    throw unreadable(caller, name, cause);
  }
}

/** Returns the check of an option that is itself an options object. */
export function nested<T>(check: OptionCheck<T>): Domain {
  return (caller, name, value) => check(caller, value as T & Kept, name);
}

function requirePlain(caller: string, name: string, value: unknown, keys: Iterable<string>): void {
  if (typeof value === "object" && value !== null) {
    const prototype = prototypeOf(value);
    // a plain object of another JavaScript realm has another prototype object, whose own prototype is null
    if (prototype === Object.prototype || prototype === null) return;
    if (prototype && !isArray(value) && prototypeOf(prototype) === null) return;
  }
  throw new ArgumentError(
    `${caller}: ${name} is ${describe(value)}; it must be an object with ${[...keys].join(", ")}`,
  );
}

function unknownKey(caller: string, path: string, key: string, knownKeys: Iterable<string>): ArgumentError {
  const names = [...knownKeys];
  const ranked = names.map((name) => [distance(key.toLowerCase(), name.toLowerCase()), name] as const);
  const [nearest] = ranked.sort(([a], [b]) => a - b);
  const hint = nearest ? `did you mean ${path}${nearest[1]}?` : "it has none";
  const all = names.length > 1 ? ` There are ${names.join(", ")}` : "";
  return new ArgumentError(`${caller}: there is no option ${path}${shown(key)}; ${hint}${all}`);
}

const SHOWN = 60;

/** Returns the name as it is if it consists of word characters, else as a quoted string. */
function shown(key: string): string {
  return /^\w{1,60}$/.test(key) ? key : JSON.stringify(key.slice(0, SHOWN));
}

/** The beginning of a string, and a short description of any other value, for error messages. */
export function named(value: unknown): string {
  return typeof value === "string" ? clipped(value) : describe(value);
}

/** Returns the beginning of a long string. */
function clipped(text: string): string {
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}...` : text;
}

const MAX_BIGINT = 2n ** 128n;

/** Returns a short description of a value for error messages. */
export function describe(value: unknown): string {
  switch (typeof value) {
    case "string":
      return JSON.stringify(clipped(value));
    case "function":
      return `${/^class\b/.test(sourceOf(value)) ? "the class" : "a function"} ${nameOf(value)}`.trimEnd();
    case "bigint":
      return value < MAX_BIGINT && value > -MAX_BIGINT ? `${value}n` : "a bigint of more than 128 bits";
    case "object":
      if (value === null) return "null";
      return isArray(value) ? `an array of ${listLength(value)}` : describeObject(value);
    default:
      return Object.is(value, -0) ? "-0" : clipped(String(value));
  }
}

/** Returns the source of a function by the language's own method, which a property of it cannot override. */
function sourceOf(value: unknown): string {
  return Function.prototype.toString.call(value);
}

function describeObject(object: object): string {
  const name = classOf(object);
  return name === "Object" ? "a plain object" : `an object of class ${name}`.trimEnd();
}

/** Returns the class name of an object, or "" if it is unavailable, as with some proxies. */
export function classOf(object: object): string {
  try {
    const prototype = prototypeOf(object);
    const type: unknown = prototype === null ? Object : prototype?.constructor;
    return typeof type === "function" ? nameOf(type) : "";
  } catch {
    return "";
  }
}

/** Returns the name, or "" if it is not a string (a class may have a static field `name`) or a proxy throws. */
function nameOf(type: { readonly name?: unknown }): string {
  try {
    return typeof type.name === "string" ? clipped(type.name) : "";
  } catch {
    return "";
  }
}

/** Returns the prototype of an object, or undefined if a proxy throws. */
function prototypeOf(object: object): object | null | undefined {
  try {
    return Object.getPrototypeOf(object) as object | null;
  } catch {
    return undefined;
  }
}

/** As `Array.isArray`, and false for a revoked proxy, for which that throws. */
export function isArray(value: unknown): value is readonly unknown[] {
  try {
    return Array.isArray(value);
  } catch {
    return false;
  }
}

/** Returns the length of an array, or NaN if a proxy throws or answers with something else than a number. */
export function listLength(list: readonly unknown[]): number {
  try {
    const length: unknown = list.length;
    return typeof length === "number" ? length : Number.NaN;
  } catch {
    return Number.NaN;
  }
}

/** The maximum length of a list of options: more is refused at once instead of being read for seconds. */
const MAX_LIST = 2 ** 20;

/**
 * Returns the library's own copy of an array, each of whose elements was read once, by its index, and is what `each` returned.
 * Throws `ArgumentError` for anything but an array of at most `most` elements, and for one that cannot be read. `what`
 * describes valid lists in messages.
 */
export function ownList<T>(
  caller: string,
  name: string,
  list: unknown,
  each: (value: unknown, index: number) => T,
  what = "a list",
  most = MAX_LIST,
): T[] {
  const length = isArray(list) ? listLength(list) : Number.NaN;
  if (!isArray(list) || !(length >= 0)) throw outside(caller, name, list, what);
  if (length > most)
    throw new ArgumentError(`${caller}: ${name} has ${length} elements; there may be ${most}; give fewer`);
  const copy: T[] = [];
  for (let i = 0; i < length; i++) copy.push(each(elementAt(caller, name, list, i), i));
  return copy;
}

/** Returns the entries of a Map, by the language's own iterator, or undefined for anything else, such as a proxy of a Map. */
export function entriesOfMap(value: unknown): [unknown, unknown][] | undefined {
  try {
    return [...Map.prototype.entries.call(value)];
  } catch {
    return undefined;
  }
}

/** Returns the entries of a plain object, each read once, or undefined for anything else. Throws `ArgumentError` if it throws. */
export function membersOfPlain(
  caller: string,
  name: string,
  value: unknown,
): [string, unknown][] | undefined {
  try {
    if (typeof value !== "object" || value === null) return undefined;
    const prototype: unknown = Object.getPrototypeOf(value);
    return prototype === null || prototype === Object.prototype ? Object.entries(value) : undefined;
  } catch (cause) {
    throw unreadable(caller, name, cause);
  }
}

/** Returns element i of a caller's array. Throws `ArgumentError` if an accessor or proxy throws. */
export function elementAt(caller: string, name: string, list: ArrayLike<unknown>, i: number): unknown {
  try {
    return list[i];
  } catch (cause) {
    throw unreadable(caller, name, cause);
  }
}

/** Returns a check from a predicate. `what` describes valid values in messages. */
export function domain(belongs: (value: unknown) => boolean, label: string): Domain {
  return (caller, name, value) => {
    if (!belongs(value)) throw outside(caller, name, value, label);
    // no predicate accepts undefined
    return value as Kept;
  };
}

/** Returns the error for an invalid value. */
export function outside(caller: string, name: string, value: unknown, what: string): ArgumentError {
  return new ArgumentError(`${caller}: ${name} is ${describe(value)}; it must be ${what}`);
}

export const text = domain((value) => typeof value === "string", "a string");

export const boolean = domain((value) => typeof value === "boolean", "true or false");

/** Accepts any number, including NaN and infinities. */
export const anyNumber = domain((value) => typeof value === "number", "a number");

/** Accepts any number except NaN. */
export const notNaN = domain(
  (value) => typeof value === "number" && !Number.isNaN(value),
  "a number, not NaN",
);

/** Accepts a number that is finite after rounding to f32. */
export const finite = domain(
  (value) => typeof value === "number" && Number.isFinite(Math.fround(value)),
  "a number, finite as f32",
);

/** Accepts a number that is at least 0, and finite after rounding to f32. */
export const atLeastZero = domain(
  (value) => typeof value === "number" && value >= 0 && Number.isFinite(Math.fround(value)),
  "a number, finite as f32 and at least 0",
);

/** Accepts the decay rate of a moving average: at least 0, and below 1 after rounding to f32. */
export const decayRate = domain(
  (value) => typeof value === "number" && value >= 0 && Math.fround(value) < 1,
  "a number that as f32 is at least 0 and below 1",
);

/** Accepts a number from `least` to `most`, inclusive. */
export function between(least: number, most: number): Domain {
  return domain(
    (value) => typeof value === "number" && value >= least && value <= most,
    `a number from ${least} to ${most}`,
  );
}

/** Accepts an integer from `least` to `most`, inclusive. */
export function integer(least: number, most = Number.MAX_SAFE_INTEGER): Domain {
  const range = most === Number.MAX_SAFE_INTEGER ? `from ${least}` : `from ${least} to ${most}`;
  return domain(
    (value) => Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most,
    `a whole number ${range}`,
  );
}

/** Whether a value is an unsigned 64-bit integer. */
export function isU64(value: unknown): value is bigint {
  return typeof value === "bigint" && BigInt.asUintN(64, value) === value;
}

/** Accepts an unsigned 64-bit integer. */
export const u64 = domain(isU64, "a bigint from 0n to 2n ** 64n - 1n");

/** Accepts one of these values, which are mostly names. */
export function oneOf(values: readonly (string | number)[]): Domain {
  return (caller, name, value) => {
    if ((values as readonly unknown[]).includes(value)) return value as Kept;
    throw new ArgumentError(`${caller}: ${name} ${describe(value)} is not one of ${values.join(", ")}`);
  };
}

/** Accepts a non-empty array whose elements `each` accepts. Its result is a list of the results of `each`. */
export function listOf(each: Domain): Domain {
  const what = "a list with something in it";
  return (caller, name, value) => {
    const copy = ownList(caller, name, value, (one, i) => each(caller, `${name}[${i}]`, one), what);
    if (copy.length === 0) throw outside(caller, name, value, what);
    return copy;
  };
}

/** Accepts an array, possibly empty, whose elements `each` accepts. Its result is a list of the results of `each`. */
export function anyListOf(each: Domain): Domain {
  return (caller, name, value) =>
    ownList(caller, name, value, (one, i) => each(caller, `${name}[${i}]`, one));
}

export const callable = domain((value) => typeof value === "function", "a function");

/** Throws `ArgumentError` for a promise, which an async `body` returned. `why` ends the message. */
export function requireSynchronous(caller: string, value: unknown, why: string): void {
  if (typeof (value as { then?: unknown } | undefined | null)?.then !== "function") return;
  // The body continues and may reject. The error below is enough; an unhandled rejection would end the process.
  (value as Promise<unknown>).then(undefined, () => {});
  throw new ArgumentError(`${caller}: the body is async; ${why}`);
}

/** Accepts an instance of a class. `what` describes it in messages, with an article. */
export function instance(type: { readonly prototype: object }, label: string): Domain {
  return (caller, name, value) => {
    if (isInstance(type, value)) return value as Kept;
    throw outside(caller, name, value, `${label}${unwrapHint(type, value)}`);
  };
}

/** `instanceof`, and false if a proxy throws. */
function isInstance(type: { readonly prototype: object }, value: unknown): boolean {
  try {
    return value instanceof (type as new () => unknown);
  } catch {
    return false;
  }
}

/** Accepts any value, and returns it. The function that receives the option checks it. */
export const anything: Domain = (_user, _name, value) => value as Kept;

/** Returns the value at a path of field names that are separated by dots, or undefined if a field is missing. */
export function valueAt(data: unknown, path: string): unknown {
  return path
    .split(".")
    .reduce<unknown>((value, field) => (value as Record<string, unknown> | null | undefined)?.[field], data);
}
