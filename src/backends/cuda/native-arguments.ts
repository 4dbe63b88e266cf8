/**
 * The arguments of the addon's calls: numbers in slots, one for each argument declared in native-calls.ts. The TypeScript type
 * of a call, the order of its slots and the C++ accessors (native/core/arguments.gen.h) follow from that declaration.
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
 * `A` if it has only names of `Wanted`, groups included. TypeScript checks excess properties only of fresh literals, not of
 * spread objects or variables.
 */
export type Exactly<A, Wanted> = A extends object
  ? { readonly [K in keyof A]: K extends keyof Wanted ? Exactly<A[K], NonNullable<Wanted[K]>> : never }
  : A;

/** The bits of a slot whose argument is absent: a NaN that no arithmetic produces. */
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

/** Packs the arguments of one declaration into slots, which stay valid until the next call. */
export function packing(declaration: Declaration): (args: object) => Float64Array {
  const fields = fieldsOf(declaration, 0);
  const none = new Float64Array(new BigUint64Array(slotsOf(declaration).length).fill(ABSENT).buffer);
  /** One buffer serves all calls, because native code reads it before it returns. */
  const slots = new Float64Array(none.length);
  return (args) => {
    // copies bytes; `fill` would write a value, and may not preserve the NaN's payload
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
