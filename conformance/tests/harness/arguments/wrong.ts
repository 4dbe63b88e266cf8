/** Values that no argument accepts, and the places in the arguments where they are put. */

type Path = readonly (string | number)[];

/** Creates each value anew, because some of them change when they are read. */
export const INVALID_VALUES: Readonly<Record<string, () => unknown>> = {
  null: () => null,
  undefined: () => undefined,
  NaN: () => Number.NaN,
  "-0": () => -0,
  "2 ** 34": () => 2 ** 34,
  "2 ** 40": () => 2 ** 40,
  "2 ** 53": () => 2 ** 53,
  "1e308": () => 1e308,
  "-1": () => -1,
  "1.5": () => 1.5,
  "a huge bigint": () => 1n << 200_000n,
  "a bigint": () => 7n,
  "a long string": () => "x".repeat(1_000_000),
  "a string with control characters": () => "\u001b[2J\n\u202e",
  "a symbol with a long name": () => Symbol("s".repeat(1_000_000)),
  "an empty array of 2 ** 27": () => new Array(2 ** 27),
  "an array of 2 ** 32 - 1": () => new Array(2 ** 32 - 1),
  "a long array of objects": () => Array.from({ length: 2000 }, () => ({ "a key": "v".repeat(100) })),
  "deep arrays": () => nestValue(20_000, (inner) => [inner]),
  "deep objects": () => nestValue(20_000, (inner) => ({ inner })),
  "an object that holds itself": () => {
    const cyclic: Record<string, unknown> = {};
    cyclic.own = cyclic;
    return cyclic;
  },
  "valueOf and toString": () => ({ valueOf: () => 4, toString: () => "e4m3", [Symbol.toPrimitive]: () => 4 }),
  "a toString that throws": () => ({ toString: fail, valueOf: fail, toJSON: fail }),
  "an inner promise": () => ({ inner: Promise.resolve(1) }),
  "an accessor that throws": () => Object.defineProperty({}, "format", { get: fail, enumerable: true }),
  "an array with an accessor that throws": () => Object.defineProperty([1], 0, { get: fail }),
  "a proxy that throws": () => new Proxy({}, { get: fail, ownKeys: fail, has: fail, getPrototypeOf: fail }),
  "a proxy of an array that throws": () => new Proxy([], { get: fail }),
  "a proxy of a function that throws": () => new Proxy(() => undefined, { get: fail, apply: fail }),
  "a revoked proxy": () => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    return proxy;
  },
  "a revoked proxy of an array": () => {
    const { proxy, revoke } = Proxy.revocable([], {});
    revoke();
    return proxy;
  },
  "a proxy with many keys": () =>
    new Proxy(
      {},
      {
        ownKeys: () => Array.from({ length: 5000 }, (_, i) => `k${i}`),
        getOwnPropertyDescriptor: () => ({ value: 1, enumerable: true, configurable: true }),
      },
    ),
  "a detached array": () => {
    const array = new Float32Array(8);
    structuredClone(array, { transfer: [array.buffer] });
    return array;
  },
  "a shared array": () => new Float32Array(new SharedArrayBuffer(64)),
  "a resizable array": () => {
    const buffer = Reflect.construct(ArrayBuffer, [64, { maxByteLength: 128 }]) as ArrayBuffer;
    const array = new Float32Array(buffer);
    const resize: unknown = Reflect.get(buffer, "resize");
    if (typeof resize === "function") Reflect.apply(resize, buffer, [4]);
    return array;
  },
  "a DataView": () => new DataView(new ArrayBuffer(8)),
  "a Map": () => new Map([["a", 1]]),
  "a Date": () => new Date(Number.NaN),
  "a promise": () => Promise.resolve(1),
  "a generator": () =>
    (function* () {
      yield 1;
    })(),
  "a class": () => class Other {},
  "a class with a hostile name": () => Object.defineProperty(class {}, "name", { get: fail }),
  "an object without prototype": () => Object.create(null),
};

function fail(): never {
  throw new Error("hostile");
}

function nestValue(depth: number, wrap: (inner: unknown) => unknown): unknown {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = wrap(value);
  return value;
}

/** The paths of all values in the arguments: each argument, each option, each element. */
export function pathsOf(args: readonly unknown[]): readonly Path[] {
  const paths: Path[] = [];
  const visit = (value: unknown, path: Path): void => {
    paths.push(path);
    if (typeof value !== "object" || value === null || path.length > 4) return;
    if (!Array.isArray(value) && Object.getPrototypeOf(value) !== Object.prototype) return;
    for (const [key, property] of Object.entries(value)) visit(property, [...path, key]);
  };
  for (const [i, argument] of args.entries()) visit(argument, [i]);
  return paths;
}

/** Whether the value at this path is a function. */
export function isFunction(args: readonly unknown[], path: Path): boolean {
  let value: unknown = args;
  for (const key of path) value = Reflect.get(value as object, key);
  return typeof value === "function";
}

/** Returns the arguments with another value at this path. */
export function replaceAt(args: readonly unknown[], path: Path, value: unknown): unknown[] {
  const replaceInner = (container: unknown, [key, ...inner]: Path): unknown => {
    if (key === undefined) return value;
    const copy = (
      Array.isArray(container) ? [...(container as unknown[])] : { ...(container as object) }
    ) as Record<string, unknown>;
    copy[key] = replaceInner(Reflect.get(container as object, key), inner);
    return copy;
  };
  return replaceInner([...args], path) as unknown[];
}
