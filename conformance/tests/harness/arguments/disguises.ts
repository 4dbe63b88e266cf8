/**
 * Objects whose properties change after the first read: options with accessors, frozen shapes with accessors, proxies, subclasses
 * of arrays that override methods, and proxies or prototypes of the library's objects.
 */
import { isPlain } from "./candidates.js";

/** A value in the arguments of a call that can be disguised. */
export interface Costume {
  readonly path: readonly (string | number)[];
  readonly kind: Kind;
  /** Whether the first read of each property gives the valid value, so that the call may be accepted. */
  readonly isFaithful: boolean;
}

type Kind = keyof typeof DISGUISES;

/** The values that a property has when it is read again. */
export const LATER_VALUES: readonly unknown[] = [
  undefined,
  null,
  Number.NaN,
  -1,
  2 ** 31,
  2 ** 40,
  "no such name",
  {},
  [],
  Object.freeze([2 ** 20, 2 ** 20]),
  [1, 1, 1, 1, 1, 1, 1],
];

type LaterValue = () => unknown;

class AccessorError extends Error {}

/** Returns a function that returns `firstValue` at its first call, and the result of `later` at each later call. */
function changingGetter(firstValue: unknown, later: LaterValue): () => unknown {
  let isFirst = true;
  return () => {
    if (!isFirst) return later();
    isFirst = false;
    return firstValue;
  };
}

/** Defines an accessor on `target` for each property of `value`. */
function withAccessors(target: object, value: object, get: (key: string) => () => unknown): object {
  for (const key of Object.keys(value))
    Object.defineProperty(target, key, { get: get(key), enumerable: true, configurable: true });
  return target;
}

/** A proxy whose properties change after their first read. */
function changingProxy(value: object, later: LaterValue): object {
  const readers = new Map<PropertyKey, () => unknown>();
  return new Proxy(value, {
    get(target, key) {
      const reader = readers.get(key) ?? changingGetter(Reflect.get(target, key), later);
      readers.set(key, reader);
      // the library does not store methods or the length of an array
      return typeof key === "symbol" || key === "constructor" ? Reflect.get(target, key) : reader();
    },
  });
}

/** A subclass of the value's class, with getters and methods that lie. */
function lyingSubclass(original: object): object {
  const value = Array.isArray(original) ? [...(original as unknown[])] : original;
  const methods = [
    "map",
    "every",
    "some",
    "entries",
    "values",
    "keys",
    "slice",
    "subarray",
    "includes",
    "indexOf",
  ];
  for (const name of methods) Object.defineProperty(value, name, { value: () => [], configurable: true });
  Object.defineProperty(value, Symbol.iterator, { value: function* () {}, configurable: true });
  return value;
}

/** A typed array that lies about its buffer and length. */
function lyingElements(value: object): object {
  for (const [name, fakeValue] of [
    ["length", 2 ** 20],
    ["byteLength", 2 ** 22],
    ["byteOffset", 0],
    ["buffer", new ArrayBuffer(8)],
  ] as const)
    Object.defineProperty(value, name, { get: () => fakeValue, configurable: true });
  return lyingSubclass(value);
}

const throwAccessorError = (): never => {
  throw new AccessorError("an accessor throws");
};

const DISGUISES = {
  accessors: (value, later) =>
    withAccessors({}, value, (key) => changingGetter(Reflect.get(value, key), later)),
  "frozen accessors": (value, later) =>
    Object.freeze(
      withAccessors(Array.isArray(value) ? [] : {}, value, (key) =>
        changingGetter(Reflect.get(value, key), later),
      ),
    ),
  "a changing proxy": changingProxy,
  "a proxy": (value) => new Proxy(value, {}),
  "lying methods": lyingSubclass,
  "lying elements": lyingElements,
  "throwing accessors": (value) =>
    withAccessors(Array.isArray(value) ? [] : {}, value, () => throwAccessorError),
  "a throwing proxy": (value) =>
    new Proxy(value, {
      get: throwAccessorError,
      ownKeys: throwAccessorError,
      has: throwAccessorError,
      getOwnPropertyDescriptor: throwAccessorError,
      getPrototypeOf: throwAccessorError,
    }),
  "a revoked proxy": (value) => {
    const { proxy, revoke } = Proxy.revocable(value, {});
    revoke();
    return proxy;
  },
  "its prototype": (value) => Object.create(Object.getPrototypeOf(value) as object) as object,
  "an heir": (value) => Object.create(value) as object,
} as const satisfies Record<string, (value: object, later: LaterValue) => object>;

const THROWING_KINDS = [
  "throwing accessors",
  "a throwing proxy",
  "a revoked proxy",
] as const satisfies readonly Kind[];
const PLAIN_OBJECT_KINDS = [
  "accessors",
  "frozen accessors",
  "a changing proxy",
  "a proxy",
] as const satisfies readonly Kind[];
const LIST_KINDS = [
  "frozen accessors",
  "a changing proxy",
  "a proxy",
  "lying methods",
] as const satisfies readonly Kind[];
const CLASS_INSTANCE_KINDS = [
  "a proxy",
  "its prototype",
  "an heir",
  "a throwing proxy",
  "a revoked proxy",
] as const;

/** All ways to disguise the objects and arrays in `args`. */
export function costumesOf(args: readonly unknown[]): readonly Costume[] {
  const costumes: Costume[] = [];
  const visit = (value: unknown, path: readonly (string | number)[]): void => {
    if (typeof value !== "object" || value === null) return;
    const add = (kinds: readonly Kind[], isFaithful: boolean): void => {
      for (const kind of kinds) costumes.push({ path, kind, isFaithful });
    };
    if (isPlain(value) || Array.isArray(value)) {
      add(isPlain(value) ? PLAIN_OBJECT_KINDS : LIST_KINDS, true);
      add(THROWING_KINDS, false);
      for (const [key, property] of Object.entries(value)) visit(property, [...path, key]);
    } else if (ArrayBuffer.isView(value)) {
      add(["lying elements"], true);
      add(["a proxy", "a throwing proxy", "a revoked proxy"], false);
    } else
      add(
        Object.hasOwn(Object.getPrototypeOf(value) as object, "constructor")
          ? CLASS_INSTANCE_KINDS
          : ["a proxy"],
        false,
      );
  };
  for (const [i, argument] of args.entries()) visit(argument, [i]);
  return costumes;
}

/** Returns the arguments with one value disguised. */
export function disguiseArgument(
  args: readonly unknown[],
  { path, kind }: Costume,
  later: LaterValue,
): unknown[] {
  const replaceAt = (container: unknown, [key, ...inner]: readonly (string | number)[]): unknown => {
    if (key === undefined) return DISGUISES[kind](container as object, later);
    const copy = (
      Array.isArray(container) ? [...(container as unknown[])] : { ...(container as object) }
    ) as Record<string, unknown>;
    copy[key] = replaceAt(Reflect.get(container as object, key), inner);
    return copy;
  };
  return replaceAt([...args], path) as unknown[];
}
