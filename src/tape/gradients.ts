/** The gradients that a backward pass has found and not yet passed on. */
import type { Gradient } from "./value.js";
import type { Variable } from "./variable.js";

/** A gradient for each of some variables, in the order they were found; several may share one. */
export class Gradients {
  readonly #found = new Map<Variable, Gradient>();
  /** How many variables have a gradient: counted, since looking for them at every step would take steps times leaves. */
  readonly #holders = new Map<Gradient, number>();

  get(of: Variable): Gradient | undefined {
    return this.#found.get(of);
  }

  /** `grad` takes the place of what was found before. */
  set(of: Variable, grad: Gradient): void {
    this.#count(this.#found.get(of), -1);
    this.#count(grad, 1);
    this.#found.set(of, grad);
  }

  /** The gradient of a variable, which has none any more. */
  take(of: Variable): Gradient | undefined {
    const grad = this.#found.get(of);
    this.#count(grad, -1);
    this.#found.delete(of);
    return grad;
  }

  /** Whether it is the gradient of any variable. */
  has(grad: Gradient): boolean {
    return this.#holders.has(grad);
  }

  [Symbol.iterator](): IterableIterator<[Variable, Gradient]> {
    return this.#found.entries();
  }

  #count(grad: Gradient | undefined, change: 1 | -1): void {
    if (!grad) return;
    const holders = (this.#holders.get(grad) ?? 0) + change;
    if (holders > 0) this.#holders.set(grad, holders);
    else this.#holders.delete(grad);
  }
}
