/**
 * What a call of the addon passes: numbers in slots, one for each argument that native-calls.ts declares. The type of a call, the
 * order of its slots and what C++ may read (native/core/arguments.gen.h) come from that one declaration.
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

/** What an argument may be, and what JavaScript passes for it. */
interface Kinds {
  /** The address of device memory. */
  pointer: number;
  /** A whole number from 0 to 2^53. */
  count: number;
  /** 32 bits. */
  word: number;
  /** A float. */
  float: number;
  flag: boolean;
  /** Members of the contract's enumerations. */
  wide: Value<typeof WIDE>;
  rounding: Value<typeof ROUNDING>;
  overflow: Value<typeof OVERFLOW>;
  activation: Value<typeof ACTIVATION>;
  scaleRule: Value<typeof SCALE_RULE>;
  staging: Value<typeof STAGING>;
}

export type Kind = keyof Kinds;

/** Arguments by name; one whose name ends with "?" may be left out. A group is an object of arguments. */
export interface Declaration {
  readonly [name: string]: Kind | Declaration;
}

type Passed<T> = T extends Kind ? Kinds[T] : T extends Declaration ? ArgumentsOf<T> : never;

/** The arguments of a declaration, as an object. */
export type ArgumentsOf<D extends Declaration> = {
  readonly [K in keyof D as K extends `${string}?` ? never : K]: Passed<D[K]>;
} & {
  readonly [K in keyof D as K extends `${infer Name}?` ? Name : never]?: Passed<D[K]> | undefined;
};

/**
 * `A` where it has no name that `Wanted` lacks, groups included: an object that was spread or kept in a variable may have more
 * names than TypeScript looks for.
 */
export type Exactly<A, Wanted> = A extends object
  ? { readonly [K in keyof A]: K extends keyof Wanted ? Exactly<A[K], NonNullable<Wanted[K]>> : never }
  : A;

/** The bits of a slot whose argument was not given: a NaN that no arithmetic gives. */
export const ABSENT = 0x7ff8_6c6f_636b_7374n;

/** One slot: the path of its argument through groups, as C++ names it. */
export interface Slot {
  readonly name: string;
  readonly kind: Kind;
  /** Whether it, or a group that it is in, may be left out. */
  readonly optional: boolean;
}

/** The slots of a declaration, in order. */
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

/** An argument, or a group of them; `at` is its slot, or the first of the group. */
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

/** Packs the arguments of one declaration into its slots, which are good until the next call. */
export function packing(declaration: Declaration): (args: object) => Float64Array {
  const fields = fieldsOf(declaration, 0);
  const none = new Float64Array(new BigUint64Array(slotsOf(declaration).length).fill(ABSENT).buffer);
  /** Native code reads it before it returns and keeps nothing of it, so one serves all calls. */
  const slots = new Float64Array(none.length);
  return (args) => {
    // a copy of the bytes, where `fill` would be of a value, whose NaN may be any
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
