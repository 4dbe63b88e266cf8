/** The gradients that a backward pass has accumulated and not consumed yet. */
import type { Gradient } from "./value.js";
import type { Variable } from "./variable.js";

/** The gradients of variables, in insertion order. Several variables may share one tensor. */
export class Gradients {
  readonly #gradients = new Map<Variable, Gradient>();
  /**
   * The number of variables that hold each gradient. A count makes `has` O(1); a search would cost nodes times leaves per
   * backward pass.
   */
  readonly #holders = new Map<Gradient, number>();

  get(variable: Variable): Gradient | undefined {
    return this.#gradients.get(variable);
  }

  /** Sets the gradient of a variable. It replaces an earlier one. */
  set(variable: Variable, grad: Gradient): void {
    this.#count(this.#gradients.get(variable), -1);
    this.#count(grad, 1);
    this.#gradients.set(variable, grad);
  }

  /** Removes and returns the gradient of a variable. */
  take(variable: Variable): Gradient | undefined {
    const grad = this.#gradients.get(variable);
    this.#count(grad, -1);
    this.#gradients.delete(variable);
    return grad;
  }

  /** Returns whether any variable holds this gradient. */
  has(grad: Gradient): boolean {
    return this.#holders.has(grad);
  }

  [Symbol.iterator](): IterableIterator<[Variable, Gradient]> {
    return this.#gradients.entries();
  }

  #count(grad: Gradient | undefined, change: 1 | -1): void {
    if (!grad) return;
    const holders = (this.#holders.get(grad) ?? 0) + change;
    if (holders > 0) this.#holders.set(grad, holders);
    else this.#holders.delete(grad);
  }
}
