/**
 * Checks of arguments. An options table has a check for each option; unknown options, null, wrong types and values out of range
 * are rejected. A `Domain` is the check of a single value.
 */
import { ArgumentError } from "./errors.js";
import { distance } from "./nearest.js";

/**
 * A check that throws unless `value` is valid. `user` is the name of the called function and `name` the name of the argument,
 * for the message.
 */
export type Domain = (user: string, name: string, value: unknown) => unknown;

/** A required option, with its check. */
export interface Needed {
  readonly needed: Domain;
}

/** A check for every option of T. Required options are marked by `needed`. */
export type OptionTable<T> = {
  readonly [K in keyof T]-?: Partial<Pick<T, K>> extends Pick<T, K> ? Domain : Needed;
};

/**
 * A check of an options object, which it returns. `name` is the name of the object in messages; without it, messages name only
 * the option.
 */
export type OptionCheck<T> = <O extends T>(user: string, options: O, name?: string) => O;

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
 * anything but a plain object, for an unknown option (the message suggests the nearest name), and for a missing required
 * option. `argument` is the name of the parameter, for the message about a value that is no such object.
 */
export function optionsOf<T>(table: OptionTable<T>, argument = "options"): OptionCheck<T> {
  const rows = new Map<string, Domain | Needed>(Object.entries(table));
  const domains: Record<string, Domain | undefined> = Object.create(null);
  for (const [key, row] of rows) domains[key] = typeof row === "function" ? row : row.needed;
  const wanted = [...rows].flatMap(([key, row]) => (typeof row === "function" ? [] : [key]));
  return (user, options, name) => {
    requirePlain(user, name ?? argument, options, rows.keys());
    const given = options as Readonly<Record<string, unknown>>;
    const path = name === undefined ? "" : `${name}.`;
    for (const key in given) {
      const domain = domains[key];
      if (!domain) throw unknownKey(user, path, key, rows.keys());
      const value = given[key];
      if (value !== undefined) domain(user, path + key, value);
    }
    for (const key of wanted) {
      if (given[key] === undefined) throw new ArgumentError(`${user}: ${path}${key} is missing; give it`);
    }
    return options;
  };
}

/** Returns the check of an option that is itself an options object. */
export function nested<T>(check: OptionCheck<T>): Domain {
  return (user, name, value) => check(user, value as T, name);
}

function requirePlain(user: string, name: string, value: unknown, keys: Iterable<string>): void {
  if (typeof value === "object" && value !== null) {
    const prototype = prototypeOf(value);
    // a plain object of another JavaScript realm has another prototype object, whose own prototype is null
    if (prototype === Object.prototype || prototype === null) return;
    if (prototype && !Array.isArray(value) && prototypeOf(prototype) === null) return;
  }
  throw new ArgumentError(
    `${user}: ${name} is ${describe(value)}; it must be an object with ${[...keys].join(", ")}`,
  );
}

function unknownKey(user: string, path: string, key: string, known: Iterable<string>): ArgumentError {
  const names = [...known];
  const ranked = names.map((name) => [distance(key.toLowerCase(), name.toLowerCase()), name] as const);
  const [nearest] = ranked.sort(([a], [b]) => a - b);
  const hint = nearest ? `did you mean ${path}${nearest[1]}?` : "it has none";
  const all = names.length > 1 ? ` There are ${names.join(", ")}` : "";
  return new ArgumentError(`${user}: there is no option ${path}${shown(key)}; ${hint}${all}`);
}

const SHOWN = 60;

/** Returns the name as it is if it consists of word characters, else as a quoted string. */
function shown(key: string): string {
  return /^\w{1,60}$/.test(key) ? key : JSON.stringify(key.slice(0, SHOWN));
}

/** A string as it is, and a short description of any other value, for error messages. */
export function named(value: unknown): string {
  return typeof value === "string" ? value : describe(value);
}

/** Returns a short description of a value for error messages. */
export function describe(given: unknown): string {
  switch (typeof given) {
    case "string":
      return JSON.stringify(given.length > SHOWN ? `${given.slice(0, SHOWN)}...` : given);
    case "function":
      return `${/^class\b/.test(String(given)) ? "the class" : "a function"} ${nameOf(given)}`.trimEnd();
    case "bigint":
      return `${given}n`;
    case "object":
      if (given === null) return "null";
      return Array.isArray(given) ? `an array of ${given.length}` : describeObject(given);
    default:
      return Object.is(given, -0) ? "-0" : String(given);
  }
}

function describeObject(given: object): string {
  const name = classOf(given);
  return name === "Object" ? "a plain object" : `an object of class ${name}`.trimEnd();
}

/** Returns the class name of an object, or "" if it is unavailable, as with some proxies. */
export function classOf(given: object): string {
  const made: unknown = prototypeOf(given) === null ? Object : prototypeOf(given)?.constructor;
  return typeof made === "function" ? nameOf(made) : "";
}

/** Returns the name, or "" if it is not a string (a class may have a static field `name`) or a proxy throws. */
function nameOf(given: { readonly name?: unknown }): string {
  try {
    return typeof given.name === "string" ? given.name : "";
  } catch {
    return "";
  }
}

/** Returns the prototype of an object, or undefined if a proxy throws. */
function prototypeOf(given: object): object | null | undefined {
  try {
    return Object.getPrototypeOf(given) as object | null;
  } catch {
    return undefined;
  }
}

/** Returns a check from a predicate. `what` describes valid values in messages. */
export function domain(belongs: (value: unknown) => boolean, what: string): Domain {
  return (user, name, value) => {
    if (!belongs(value)) throw outside(user, name, value, what);
  };
}

/** Returns the error for an invalid value. */
export function outside(user: string, name: string, value: unknown, what: string): ArgumentError {
  return new ArgumentError(`${user}: ${name} is ${describe(value)}; it must be ${what}`);
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
  return (user, name, value) => {
    if ((values as readonly unknown[]).includes(value)) return;
    throw new ArgumentError(`${user}: ${name} ${describe(value)} is not one of ${values.join(", ")}`);
  };
}

/** Accepts a non-empty array whose elements all satisfy `each`. */
export function listOf(each: Domain): Domain {
  return (user, name, value) => {
    if (!Array.isArray(value) || value.length === 0)
      throw outside(user, name, value, "a list with something in it");
    for (const [i, one] of value.entries()) each(user, `${name}[${i}]`, one);
  };
}

/** Accepts an array, possibly empty, whose elements all satisfy `each`. */
export function anyListOf(each: Domain): Domain {
  const some = listOf(each);
  return (user, name, value) => (Array.isArray(value) && value.length === 0) || some(user, name, value);
}

export const callable = domain((value) => typeof value === "function", "a function");

/** Throws `ArgumentError` for a promise, which an async `body` returned. `why` ends the message. */
export function requireSynchronous(user: string, value: unknown, why: string): void {
  if (typeof (value as { then?: unknown } | undefined | null)?.then !== "function") return;
  // The body continues and may reject. The error below is enough; an unhandled rejection would end the process.
  (value as Promise<unknown>).then(undefined, () => {});
  throw new ArgumentError(`${user}: the body is async; ${why}`);
}

/** Accepts an instance of a class. `what` describes it in messages, with an article. */
export function instance(made: { readonly prototype: object }, what: string): Domain {
  return domain((value) => value instanceof (made as new () => unknown), what);
}

/** Accepts any value. The function that receives the option checks it. */
export const anything: Domain = () => undefined;

/** Returns the value at a path of field names that are separated by dots, or undefined if a field is missing. */
export function valueAt(data: unknown, path: string): unknown {
  return path
    .split(".")
    .reduce<unknown>((value, field) => (value as Record<string, unknown> | null | undefined)?.[field], data);
}
