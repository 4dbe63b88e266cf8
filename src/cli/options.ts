/** Command-line options as data. Each option is a row of a table; parsing and help follow from the table. */
import { type ParseArgsConfig, parseArgs } from "node:util";
import { ArgumentError } from "../errors.js";
import { nearest } from "../text/nearest.js";

/** One option. T is the type of its value. */
export interface Option<T> {
  readonly kind: "flag" | "value";
  readonly help: string;
  readonly short?: string;
  /** The name of the value in the help. */
  readonly placeholder?: string;
  /** Parses the value. For a flag, the string is "". Throws `ArgumentError` for an invalid string. */
  readonly parse: (text: string) => T;
  /** The value if the option is not on the command line. */
  readonly fallback: T;
  /** The default value as the help shows it. */
  readonly shown?: string;
  readonly required?: boolean;
  /** For a path: whether the command reads the file, writes the file, or creates a folder at the path. */
  readonly file?: "read" | "written" | "made";
}

/** Options by their long names. */
export type OptionTable = Readonly<Record<string, Option<unknown>>>;

/** The values of the options of a table, by name. */
export type Values<T extends OptionTable> = {
  readonly [K in keyof T]: T[K] extends Option<infer V> ? V : never;
};

type Row<T> = Omit<Option<T>, "kind" | "fallback" | "parse">;

/** An option without a value. It is true if it is on the command line. */
export function flag(help: string, row: { readonly short?: string } = {}): Option<boolean> {
  return { kind: "flag", help, parse: () => true, fallback: false, ...row };
}

/** An option with a value and a default. */
export function value<T>(row: Row<T> & Pick<Option<T>, "parse" | "fallback">): Option<T> {
  return { kind: "value", ...row };
}

/** An option with a value. The value is undefined if the option is not on the command line. */
export function optional<T>(row: Row<T> & Pick<Option<T>, "parse">): Option<T | undefined> {
  return { kind: "value", fallback: undefined, ...row };
}

/** Parses a non-empty string. */
export function someText(text: string): string {
  if (text !== "") return text;
  throw new ArgumentError("an empty string was given");
}

/** A required option whose value is a non-empty string. */
export function required(row: Row<string>): Option<string> {
  return { kind: "value", parse: someText, fallback: "", required: true, ...row };
}

/** An option whose value is one of `names`. The help explains each name. */
export function choice<const T extends string>(
  names: readonly T[],
  row: {
    readonly help: string;
    readonly meanings: Readonly<Record<NoInfer<T>, string>>;
    readonly fallback: NoInfer<T>;
  },
): Option<T> {
  const { help, meanings, fallback } = row;
  return {
    kind: "value",
    placeholder: names.join("|"),
    help: withMeanings(help, meanings),
    parse: oneOf(names),
    fallback,
    shown: fallback,
  };
}

/** A help text that explains each value: "the backend: wasm, the reference; cuda, a GPU". */
export function withMeanings(help: string, meanings: Readonly<Record<string, string>>): string {
  return `${help}: ${Object.entries(meanings)
    .map(([name, meaning]) => `${name}, ${meaning}`)
    .join("; ")}`;
}

/** Returns a parser of one of `names`. */
export function oneOf<const T extends string>(names: readonly T[]): (text: string) => T {
  return (text) => {
    const match = names.find((name) => name === text);
    if (match !== undefined) return match;
    throw new ArgumentError(`"${text}" is not one of ${names.join(", ")}`);
  };
}

/** Returns a parser of a comma-separated list of `names`. The result is in the order of `names`. */
export function someOf<const T extends string>(names: readonly T[]): (text: string) => readonly T[] {
  const parseOne = oneOf(names);
  return (text) => {
    const selected = text.split(",").map(parseOne);
    return names.filter((name) => selected.includes(name));
  };
}

/** Returns a parser of integers from `minimum` to `maximum`, inclusive. */
export function integer(minimum: number, maximum = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const number = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (number >= minimum && number <= maximum) return number;
    const range =
      maximum === Number.MAX_SAFE_INTEGER
        ? `an integer from ${minimum}`
        : `an integer from ${minimum} to ${maximum}`;
    throw new ArgumentError(`"${text}" is not ${range}`);
  };
}

/** Parses a finite number, rounded to f32. */
export function float32(text: string): number {
  const number = text.trim() === "" ? Number.NaN : Math.fround(Number(text));
  if (Number.isFinite(number)) return number;
  throw new ArgumentError(`"${text}" is not a finite number of f32's range`);
}

/** Parses a finite number above zero, rounded to f32. */
export function positiveFloat32(text: string): number {
  const number = float32(text);
  if (number > 0) return number;
  throw new ArgumentError(`"${text}" is not a positive number of f32's range`);
}

/** Parses an unsigned 64-bit integer, decimal or hexadecimal with 0x. */
export function u64(text: string): bigint {
  const bits = /^(\d+|0[xX][\da-fA-F]+)$/.test(text) ? BigInt(text) : -1n;
  if (bits >= 0n && bits < 1n << 64n) return bits;
  throw new ArgumentError(`"${text}" is not an integer from 0 to 2^64 - 1`);
}

/**
 * The parsed arguments: the values of options by name, the positional arguments, and the names of the options on the command
 * line.
 */
export interface Parsed {
  readonly values: Readonly<Record<string, unknown>>;
  readonly positionals: readonly string[];
  readonly usedOptions: ReadonlySet<string>;
}

/**
 * Parses arguments by a table. Throws `ArgumentError` for an unknown option, a missing or superfluous value, an invalid value,
 * and a repeated option. It does not check that required options are present.
 */
export function parseOptions(table: OptionTable, args: readonly string[]): Parsed {
  const options: NonNullable<ParseArgsConfig["options"]> = {};
  for (const [name, { kind, short }] of Object.entries(table)) {
    options[name] = { type: kind === "flag" ? "boolean" : "string", ...(short ? { short } : {}) };
  }
  const { tokens } = parseArgs({
    args: [...args],
    options,
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const values: Record<string, unknown> = {};
  const usedOptions = new Set<string>();
  for (const [name, row] of Object.entries(table)) values[name] = row.fallback;
  for (const token of tokens) {
    if (token.kind !== "option") continue;
    const row = Object.hasOwn(table, token.name) ? table[token.name] : undefined;
    if (!row) {
      const names = Object.keys(table).map((name) => `--${name}`);
      throw new ArgumentError(`there is no option ${token.rawName}${nearest(token.rawName, names)}`);
    }
    if (usedOptions.has(token.name)) throw new ArgumentError(`--${token.name} was given twice; give it once`);
    // an argument that looks like an option is not used as a value, unless it is written as --name=value
    const isNext = !token.inlineValue && /^--[a-z]/.test(token.value ?? "");
    values[token.name] = parseValue(row, token.rawName, isNext ? undefined : token.value);
    usedOptions.add(token.name);
  }
  const positionals = tokens.flatMap((token) => (token.kind === "positional" ? [token.value] : []));
  return { values, positionals, usedOptions };
}

/** Returns the values of the options of one table. */
export function valuesOf<T extends OptionTable>(table: T, { values }: Parsed): Values<T> {
  return Object.fromEntries(Object.keys(table).map((name) => [name, values[name]])) as Values<T>;
}

function parseValue(row: Option<unknown>, name: string, text: string | undefined): unknown {
  if (row.kind === "flag" && text !== undefined)
    throw new ArgumentError(`${name} takes no value; "${text}" was given`);
  if (row.kind === "value" && text === undefined)
    throw new ArgumentError(`${name} needs a value, ${row.placeholder}`);
  try {
    return row.parse(text ?? "");
  } catch (error) {
    throw error instanceof ArgumentError ? new ArgumentError(`${name}: ${error.message}`) : error;
  }
}
