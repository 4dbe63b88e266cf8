/**
 * Recognition of the library's own objects. `instanceof` is true for a proxy of an object and for any object with its prototype,
 * which have none of its private fields. Classes whose objects are arguments therefore answer `instanceof` by a private field.
 */

const hasPrototype: (this: unknown, value: unknown) => boolean = Function.prototype[Symbol.hasInstance];

/** Whether a value can have private fields. */
export function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

/** The ordinary `instanceof`, and false if a proxy throws. */
export function inherits(made: object, value: unknown): boolean {
  try {
    return hasPrototype.call(made, value);
  } catch {
    return false;
  }
}

/** What to do with a proxy of an object or an imitation, for the end of an error message; "" for any other value. */
export function unwrapHint(made: object, value: unknown): string {
  return inherits(made, value)
    ? "; it is a proxy or an imitation of one: give the object itself (toRaw() in Vue, and markRaw() where it is stored)"
    : "";
}
