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
import type { WideDType } from "../../tensor/shape.js";

type Value<T> = T[keyof T];

/** The kinds of arguments, and the JavaScript type of each. */
interface Kinds {
  /** The address of device memory. */
  pointer: number;
  /** An integer from 0 to 2^53. */
  count: number;
  /** A 32-bit integer. */
  word: number;
  /** An integer of 32 bits with a sign. */
  int: number;
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
 * How a kernel uses device memory. `scratch` is a workspace: the argument named `workspace`, which no other argument may
 * overlap.
 */
export type Access = "reads" | "writes" | "updates" | "scratch";

/**
 * The elements of device memory. `wide` is f32, bf16 or f16, as the dtype of the tensor says; `codes` are packed codes of the
 * format that the argument `word` of the same call names; `bits` are elements of as many bits as `of` says. C++ has pointers to
 * bytes for `u8`, `u4` (two per byte) and `storage` (as `codes`), and untyped ones for `bytes`.
 */
export type Element =
  | "wide"
  | "codes"
  | "storage"
  | "f32"
  | "i32"
  | "u32"
  | "u8"
  | "u4"
  | "bf16"
  | "bytes"
  | "bits";

/** Device memory that a call takes: a tensor or, for a workspace, an address. */
export interface Memory {
  readonly element: Element;
  /**
   * The number of elements, in C++: a product of arguments of the call, numbers, and functions that scripts/generate/kernels.mjs
   * knows.
   */
  readonly size: string;
  readonly access: Access;
  /** A comment for the field of the C++ struct. */
  readonly about: string | undefined;
  /**
   * For `wide`: the argument that has the same dtype; only that argument has a slot for the dtype. For `bits`: the bits of an
   * element, in C++.
   */
  readonly of: string | undefined;
  /** Whether addresses are multiples of an element only. Without this, kernels may access up to 16 bytes at once. */
  readonly isAlignedToElements?: true;
}

/** An integer from 0 to 2^53 with a narrower range, and its type in C++. */
export interface Bounded {
  readonly from: number;
  readonly to: number;
  readonly type: "int64_t" | "uint64_t" | "int32_t" | "uint32_t" | "uint16_t";
}

/** A number that has a default where it is left out. */
export interface Defaulted<K extends Kind = Kind> {
  readonly kind: K;
  /** The default, in C++. */
  readonly absent: string;
}

/** A group of arguments that is a struct in C++. */
export interface Group<F extends Declaration = Declaration> {
  /**
   * The name of the struct. `npm run generate` writes it, with two exceptions: the struct of another call's parameters, of which
   * the group may have a subset of the fields, and the structs that `STRUCTS` of scripts/generate/native-tables.mjs lists.
   */
  readonly struct: string;
  readonly fields: F;
  /** Additional arguments of a handwritten reader, in C++. */
  readonly reading: string | undefined;
}

/**
 * A field of a C++ struct that JavaScript does not pass. The binding sets it to null or 0, or reads it from the context of the
 * call.
 */
export interface Internal {
  /** The type of the field in C++. */
  readonly internal: string;
  /** The C++ expression of its value; undefined if the value is null or 0. */
  readonly value: string | undefined;
  readonly about: string | undefined;
}

/**
 * A condition on the arguments, and the error of a call that violates it. It is checked before any size that depends on it is
 * computed.
 */
export interface Condition {
  readonly condition: string;
  readonly message: string;
}

const memory =
  <E extends Element, A extends Access>(element: E, access: A) =>
  <L extends string | undefined = undefined>(size: string, about?: string, of?: L) =>
    ({ element, size, access, about, of: of as L }) as const;

const memories = <A extends Access>(access: A) =>
  ({
    wide: memory("wide", access),
    codes: memory("codes", access),
    f32: memory("f32", access),
    i32: memory("i32", access),
    u32: memory("u32", access),
    u8: memory("u8", access),
    u4: memory("u4", access),
    storage: memory("storage", access),
    bf16: memory("bf16", access),
    bytes: memory("bytes", access),
    bits: memory("bits", access),
  }) as const;

/** Device memory that a kernel reads. */
export const reads = memories("reads");
/** Device memory that a kernel writes. */
export const writes = memories("writes");
/** Device memory that a kernel reads and writes. */
export const updates = memories("updates");
/** A workspace of a kernel. */
export const scratch = memories("scratch");

/** Returns the declaration with the weaker requirement that the address is a multiple of the element size. */
export function alignedToElements<const M extends Memory>(memory: M): M {
  return { ...memory, isAlignedToElements: true };
}

/** A count from `from` to `to`. */
export function bounded({ from = 0, to = 2 ** 53, type = "int64_t" }: Partial<Bounded>): Bounded {
  return { from, to, type };
}

/** A number whose default is `absent`. Its name ends with "?". */
export function defaulted<const K extends Kind>(kind: K, absent: string): Defaulted<K> {
  return { kind, absent };
}

/** A field of type `type` that is not passed. */
export function internal(type: string, about?: string, value?: string): Internal {
  return { internal: type, about, value };
}

/** A group of arguments that is the struct `struct` in C++. */
export function group<const F extends Declaration>(struct: string, fields: F, reading?: string): Group<F> {
  return { struct, fields, reading };
}

/**
 * The arguments of a call by name. A name that ends with "?" is optional. An object that has none of the types above is a group
 * of arguments without a struct. If all memory of a call is declared as `Memory`, or is in a group that is a struct, `npm run
 * generate` writes the struct of its kernel's parameters, whose fields are the arguments in this order, and the binding that
 * reads them. Names in sizes and conditions are fields of the same group, or else of the groups around it.
 */
export interface Declaration {
  readonly [name: string]: Kind | Memory | Bounded | Defaulted | Group | Internal | Condition | Declaration;
}

/** The declarations of several calls, by the calls' names. */
export type Declarations = Readonly<Record<string, Declaration>>;

/** A value with an address in device memory, such as a tensor. */
export interface Located {
  readonly address: number;
}

/** A tensor of f32, bf16 or f16. */
export interface LocatedWide extends Located {
  readonly dtype: WideDType;
}

type PassedMemory<M extends Memory> = M["access"] extends "scratch"
  ? number
  : M["element"] extends "wide"
    ? LocatedWide
    : Located;

type PassedValue<T> = T extends Kind
  ? Kinds[T]
  : T extends Memory
    ? PassedMemory<T>
    : T extends Bounded
      ? number
      : T extends Defaulted<infer K>
        ? Kinds[K]
        : T extends Group<infer F>
          ? ArgumentsOf<F>
          : T extends Declaration
            ? ArgumentsOf<T>
            : never;

/** The type of the arguments object of a declaration. */
export type ArgumentsOf<D extends Declaration> = {
  readonly [K in keyof D as K extends `${string}?`
    ? never
    : D[K] extends Internal | Condition
      ? never
      : K]: PassedValue<D[K]>;
} & {
  readonly [K in keyof D as K extends `${infer Name}?` ? Name : never]?: PassedValue<D[K]> | undefined;
};

/**
 * The type `A`, if it and its groups have only names of `Expected`; else a type that nothing is assignable to. TypeScript itself
 * rejects unknown properties only in fresh object literals, not in spread objects or variables.
 */
export type Exactly<A, Expected> = A extends object
  ? Expected extends Located
    ? A
    : { readonly [K in keyof A]: K extends keyof Expected ? Exactly<A[K], NonNullable<Expected[K]>> : never }
  : A;
