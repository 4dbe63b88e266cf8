/**
 * The arguments of the addon's calls. They are passed as numbers in the slots of a Float64Array, one for each argument declared
 * in native-calls.ts. The TypeScript type of a call, the order of its slots and the C++ accessors (native/core/arguments.gen.h)
 * follow from that declaration.
 */
import type {
  ACTIVATION,
  OVERFLOW,
  ROUNDING,
  SCALE_RULE,
  STAGING,
  WIDE,
} from "../../formats/contract.gen.js";

type Value<T> = T[keyof T];

/** The kinds of arguments, and the JavaScript type of each. */
interface Kinds {
  /** The address of device memory. */
  pointer: number;
  /** An integer from 0 to 2^53. */
  count: number;
  /** A 32-bit integer. */
  word: number;
  /** A number that is rounded to f32. */
  float: number;
  flag: boolean;
  /** The next six kinds are members of the contract's enumerations (assembly/contract.ts). */
  wide: Value<typeof WIDE>;
  rounding: Value<typeof ROUNDING>;
  overflow: Value<typeof OVERFLOW>;
  activation: Value<typeof ACTIVATION>;
  scaleRule: Value<typeof SCALE_RULE>;
  staging: Value<typeof STAGING>;
}

export type Kind = keyof Kinds;

/**
 * The arguments of a call by name. A name that ends with "?" is optional. A value that is an object is a group of arguments.
 */
export interface Declaration {
  readonly [name: string]: Kind | Declaration;
}

/** The declarations of several calls, by the calls' names. */
export type Declarations = Readonly<Record<string, Declaration>>;

type Passed<T> = T extends Kind ? Kinds[T] : T extends Declaration ? ArgumentsOf<T> : never;

/** The type of the arguments object of a declaration. */
export type ArgumentsOf<D extends Declaration> = {
  readonly [K in keyof D as K extends `${string}?` ? never : K]: Passed<D[K]>;
} & {
  readonly [K in keyof D as K extends `${infer Name}?` ? Name : never]?: Passed<D[K]> | undefined;
};

/**
 * The type `A`, if it and its groups have only names of `Wanted`; else a type that nothing is assignable to. TypeScript itself
 * rejects unknown properties only in fresh object literals, not in spread objects or variables.
 */
export type Exactly<A, Wanted> = A extends object
  ? { readonly [K in keyof A]: K extends keyof Wanted ? Exactly<A[K], NonNullable<Wanted[K]>> : never }
  : A;

/** The bit pattern of a slot whose argument is absent: a NaN that arithmetic does not produce. */
export const ABSENT = 0x7ff8_6c6f_636b_7374n;

/** One slot. Its name is the path of the argument through groups, with dots, as C++ names it. */
export interface Slot {
  readonly name: string;
  readonly kind: Kind;
  /** Whether the argument, or a group that contains it, is optional. */
  readonly optional: boolean;
}

/** Returns the slots of a declaration, in order. */
export function slotsOf(declaration: Declaration, prefix = "", within = false): readonly Slot[] {
  return Object.entries(declaration).flatMap(([key, declared]) => {
    const optional = within || key.endsWith("?");
    const name = prefix + nameIn(key);
    return typeof declared === "string"
      ? [{ name, kind: declared, optional }]
      : slotsOf(declared, `${name}.`, optional);
  });
}

function nameIn(key: string): string {
  return key.endsWith("?") ? key.slice(0, -1) : key;
}

/** An argument, or a group of arguments. `at` is the index of its slot or, for a group, of the first slot. */
interface Field {
  readonly name: string;
  readonly at: number;
  readonly fields: readonly Field[] | undefined;
}

function fieldsOf(declaration: Declaration, first: number): readonly Field[] {
  let at = first;
  return Object.entries(declaration).map(([key, declared]) => {
    const isGroup = typeof declared !== "string";
    const field = { name: nameIn(key), at, fields: isGroup ? fieldsOf(declared, at) : undefined };
    at += isGroup ? slotsOf(declared).length : 1;
    return field;
  });
}

type Given = Readonly<Record<string, unknown>>;

/** Returns a function that packs arguments into slots. The array that it returns is valid until its next call. */
export function packing(declaration: Declaration): (args: object) => Float64Array {
  const fields = fieldsOf(declaration, 0);
  const none = new Float64Array(new BigUint64Array(slotsOf(declaration).length).fill(ABSENT).buffer);
  /** One buffer serves all calls: native code reads it before the call returns. */
  const slots = new Float64Array(none.length);
  return (args) => {
    // `set` copies bytes. `fill` would write a number and might not preserve the payload of the NaN.
    slots.set(none);
    pack(slots, fields, args as Given);
    return slots;
  };
}

function pack(slots: Float64Array, fields: readonly Field[], args: Given): void {
  for (const { name, at, fields: group } of fields) {
    const value = args[name];
    if (value === undefined) continue;
    if (group) pack(slots, group, value as Given);
    else slots[at] = typeof value === "number" ? value : value ? 1 : 0;
  }
}
