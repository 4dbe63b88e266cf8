/**
 * Recognition of the library's own objects. `instanceof` is true for a proxy of an object and for any object with its prototype,
 * which have none of its private fields. Classes whose objects are arguments therefore answer `instanceof` by a private field.
 */

import { ArgumentError } from "./errors.js";

const hasPrototype: (this: unknown, value: unknown) => boolean = Function.prototype[Symbol.hasInstance];

/** Whether a value can have private fields. */
export function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

/** The ordinary `instanceof`, and false if a proxy throws. */
export function inherits(type: object, value: unknown): boolean {
  try {
    return hasPrototype.call(type, value);
  } catch {
    return false;
  }
}

/** What to do with a proxy of an object or an imitation, for the end of an error message; "" for any other value. */
export function unwrapHint(type: object, value: unknown): string {
  return inherits(type, value)
    ? "; it is a proxy or an imitation of one: give the object itself (toRaw() in Vue, and markRaw() where it is stored)"
    : "";
}

/** A class, as the guard of its methods needs it. */
interface Guarded {
  readonly name: string;
  readonly prototype: object;
  [Symbol.hasInstance](value: unknown): boolean;
}

type Method = (this: unknown, ...args: unknown[]) => unknown;

const isMethod = (value: unknown): value is Method => typeof value === "function";

/** The error for a method or an accessor that is called on something else than an object of its class. */
export function notItself({ name }: Guarded, key: PropertyKey, receiver: unknown): ArgumentError {
  const article = /^[AEIOU]/.test(name) ? "an" : "a";
  const what = isObject(receiver) ? `a proxy or an imitation of ${article} ${name}` : `no ${name}`;
  return new ArgumentError(
    `${name}.${String(key)}: it was called on ${what}; call it on the object itself (toRaw() in Vue, and markRaw() where it is stored)`,
  );
}

/** Returns the function that calls `method` on objects of the class, and throws `ArgumentError` for another receiver. */
function guarded(
  guardedClass: Guarded,
  key: PropertyKey,
  method: Method,
  isOwn: (x: unknown) => boolean,
): Method {
  const rejects = method.constructor.name === "AsyncFunction";
  const wrapper: Method = function (...args) {
    if (isOwn(this)) return Reflect.apply(method, this, args);
    const error = notItself(guardedClass, key, this);
    if (rejects) return Promise.reject(error);
    throw error;
  };
  for (const property of ["name", "length"] as const)
    Object.defineProperty(wrapper, property, { value: method[property], configurable: true });
  return wrapper;
}

/**
 * Makes the methods and accessors of a class throw `ArgumentError` if they are called on a proxy of an object, which has none of
 * its private fields. `isOwn` tells objects of the class; by default `instanceof` does. The accessors in `checked` check their
 * receiver themselves. Call it in a static block of the class.
 */
export function guardReceivers(
  guardedClass: Guarded,
  isOwn: (x: unknown) => boolean = (x) => guardedClass[Symbol.hasInstance](x),
  checked: readonly PropertyKey[] = [],
): void {
  for (const key of Reflect.ownKeys(guardedClass.prototype)) {
    const descriptor = Object.getOwnPropertyDescriptor(guardedClass.prototype, key);
    if (!descriptor?.configurable || key === "constructor" || checked.includes(key)) continue;
    const { get, set, value } = descriptor;
    const guard = (method: Method): Method => guarded(guardedClass, key, method, isOwn);
    Object.defineProperty(guardedClass.prototype, key, {
      ...descriptor,
      ...(get ? { get: guard(get) } : {}),
      ...(set ? { set: guard(set) } : {}),
      ...(isMethod(value) ? { value: guard(value) } : {}),
    });
  }
}
