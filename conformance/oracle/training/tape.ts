/** Reverse-mode differentiation in plain numbers: nodes in order of computation, and the backward pass. */
import { type Matrix, sum } from "./matrix.js";
import { QuantizedModel } from "./quantized.js";

/** A value between layers: wide, or quantized if the layer was asked for a quantized result. */
export type Passed = Matrix | QuantizedModel;

export class Value {
  grad: Matrix | undefined;

  constructor(
    public data: Passed,
    public requiresGrad = false,
  ) {}

  /** The value as a wide matrix. */
  get wide(): Matrix {
    return wideOf(this.data);
  }
}

export function wideOf(x: Passed): Matrix {
  return x instanceof QuantizedModel ? x.wide(x.dtype) : x;
}

interface Function {
  readonly inputs: readonly Value[];
  readonly results: readonly Value[];
  readonly backward: Backward;
}

export type Backward = (grads: readonly (Passed | undefined)[]) => readonly (Passed | undefined)[];

/** The nodes of one or several forward passes, for one backward pass. */
export class Tape {
  readonly #functions: Function[] = [];

  /** Adds a node. Its results require a gradient if any input does. */
  record(inputs: readonly Value[], results: readonly Passed[], backward: Backward): Value[] {
    const recorded = inputs.some(({ requiresGrad }) => requiresGrad);
    const variables = results.map((data) => new Value(data, recorded));
    if (recorded) this.#functions.push({ inputs, results: variables, backward });
    return variables;
  }

  one(
    inputs: readonly Value[],
    result: Passed,
    backward: (grad: Passed) => readonly (Passed | undefined)[],
  ): Value {
    return this.record(inputs, [result], ([grad]) => (grad ? backward(grad) : []))[0] as Value;
  }

  /** Computes gradients from `root` and adds them to every leaf that requires one. */
  backward(root: Value, grad: Matrix): void {
    const gradients = new Map<Value, Passed>([[root, grad]]);
    const results = new Set(this.#functions.flatMap((each) => each.results));
    for (const { inputs, results, backward } of [...this.#functions].reverse()) {
      const grads = results.map((result) => gradients.get(result));
      if (grads.every((each) => each === undefined)) continue;
      const inputGradients = backward(grads);
      inputs.forEach((input, i) => {
        const part = inputGradients[i];
        if (!part || !input.requiresGrad) return;
        const before = gradients.get(input);
        gradients.set(input, before ? sum(wideOf(before), wideOf(part)) : part);
      });
    }
    for (const [value, part] of gradients) {
      if (results.has(value)) continue;
      value.grad = value.grad ? sum(value.grad, wideOf(part)) : wideOf(part);
    }
  }
}
