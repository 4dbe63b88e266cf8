/** Gradients of weights that are computed after the backward pass, by `backwardDw`. */
import { add } from "../ops/elementwise/operators.gen.js";
import type { GemmInput } from "../ops/gemm/operand.js";
import { currentPass } from "../tape/uses.js";
import { type Gradient, membersOf, type Value } from "../tape/value.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { disown } from "../tensor/scope.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** Computes a gradient from the operands of the product. Returns undefined if it was added to a `mainGrad`. */
export type WgradProduct = (x: GemmInput, dy: Gradient) => Tensor<WideDType> | undefined;

/** A product that has not been computed yet. It owns handles of its operands. */
interface WaitingProduct {
  /** The backward pass that would have computed the product. */
  readonly pass: object | undefined;
  readonly x: Value;
  readonly dy: Gradient;
  readonly compute: WgradProduct;
}

/** The products of one weight that wait for `backwardDw`, in the order in which backward passes would have computed them. */
export class DelayedGradients {
  readonly #waitingProducts: WaitingProduct[] = [];

  /** Keeps the operands of a product for `run`. Returns undefined, because no gradient is known yet. */
  put(x: Value, dy: Gradient, compute: WgradProduct): undefined {
    this.#waitingProducts.push({ pass: currentPass(), x: sharedHandle(x), dy: sharedHandle(dy), compute });
  }

  /** Whether a product waits. */
  get isWaiting(): boolean {
    return this.#waitingProducts.length > 0;
  }

  /**
   * Computes all products of the oldest backward pass and returns their sum, added in the order in which that pass would have
   * added them. Returns undefined if they were added to a `mainGrad`.
   */
  run(): Tensor<WideDType> | undefined {
    const [oldest] = this.#waitingProducts;
    const products = this.#waitingProducts.filter(({ pass }) => pass === oldest?.pass);
    let total: Tensor<WideDType> | undefined;
    for (const { x, dy, compute } of products) {
      const grad = compute(x, dy);
      total = total && grad ? add(total, grad) : (total ?? grad);
    }
    for (const each of this.#waitingProducts.splice(0, products.length)) release(each);
    return total;
  }

  /** Frees the operands of all waiting products. */
  dispose(): void {
    for (const each of this.#waitingProducts.splice(0)) release(each);
  }
}

function release({ x, dy }: WaitingProduct): void {
  x.dispose();
  dy.dispose();
}

/** Returns another handle of the same memory, which no scope owns. */
function sharedHandle<T extends Value>(value: T): T {
  const handle = value instanceof QuantizedTensor ? value.share() : value.reshape(value.shape);
  for (const member of membersOf(handle)) disown(member);
  return handle as T;
}
