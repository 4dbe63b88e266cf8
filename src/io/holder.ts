/** Owns tensors across awaits. (A scope would also own what other code creates meanwhile.) */
import type { Owned } from "../tensor/scope.js";

/** Disposes of its tensors at the end of the block. */
export class Holder {
  readonly #tensors: Owned[] = [];

  hold<T extends Owned>(value: T): T {
    this.#tensors.push(value);
    return value;
  }

  [Symbol.dispose](): void {
    for (const value of this.#tensors.splice(0)) value.dispose();
  }
}
