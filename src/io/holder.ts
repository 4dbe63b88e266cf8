/** Owns tensors across awaits. (A `Scope` would also own the tensors that other code creates during an await.) */
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
