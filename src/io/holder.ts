/** Tensors held across awaits, where a scope would also own what other code creates. */
import type { Owned } from "../tensor/scope.js";

/** Disposes of what it was given at the end of its block. */
export class Holder {
  readonly #held: Owned[] = [];

  hold<T extends Owned>(value: T): T {
    this.#held.push(value);
    return value;
  }

  [Symbol.dispose](): void {
    for (const value of this.#held.splice(0)) value.dispose();
  }
}
