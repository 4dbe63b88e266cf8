/** The parts of graph capture that all backends share. */
import { ArgumentError, UnsupportedError } from "../errors.js";
import { disown } from "../tensor/scope.js";
import type { Storage } from "../tensor/storage.js";
import { Tensor } from "../tensor/tensor.js";
import type { OpArgs, OpName, QuantizeArgs } from "./ops.js";

/**
 * For each operation that depends on host state, such as a step counter: a function that returns why a replay with the same
 * arguments would be wrong, or undefined if it would be right.
 */
const HOST_COUNTS: { readonly [K in OpName]?: (args: OpArgs[K]) => string | undefined } = {
  adamw: () => "the host counts the steps, from which its bias corrections follow",
  sgd: ({ m, first }) =>
    m && first ? "the host counts the steps, and the first one fills the buffer" : undefined,
  encode: ({ rounding, randomBits }) => stochastic(rounding === "stochastic" && !randomBits),
  sweep: ({ rounding }) => stochastic(rounding === "stochastic"),
  quantize: drawsElements,
  biasGradQuantize: drawsElements,
  activationQuantize: drawsElements,
  normQuantize: drawsElements,
};

type RandomInputs = Pick<QuantizeArgs, "spec" | "randomBits" | "randomBitsColumnwise">;

function drawsElements({ spec, randomBits, randomBitsColumnwise }: RandomInputs): string | undefined {
  return stochastic(spec.stochastic && !randomBits && !randomBitsColumnwise);
}

function stochastic(is: boolean): string | undefined {
  return is ? "the host draws its random bits, and each replay would round with the same ones" : undefined;
}

/** Throws `UnsupportedError` for an operation whose replay would be wrong. */
export function requireReplayable<K extends OpName>(op: K, args: OpArgs[K]): void {
  const reason = HOST_COUNTS[op]?.(args);
  if (reason) throw new UnsupportedError(`${op} in a captured graph`, reason);
}

/** Returns the error for an action that cannot be captured. `action` describes it, for example "a tensor is read". */
export function waits(action: string): ArgumentError {
  return new ArgumentError(
    `${action} while a graph is captured, but captured work runs only at replay; do that before or after the capture`,
  );
}

/** Keeps blocks of memory allocated as long as captured work uses them. */
export class HeldMemory {
  readonly #retained = new Set<Storage>();

  hold(storage: Storage): void {
    if (!this.#retained.has(storage)) this.#retained.add(storage.retainFixed());
  }

  release(): void {
    for (const storage of this.#retained) storage.releaseFixed();
    this.#retained.clear();
  }
}

/**
 * Returns a copy of the arguments in which each tensor is replaced by a new handle of the same memory. No scope owns these
 * handles.
 */
export function withOwnTensors<A>(args: A): { readonly args: A; readonly tensors: Iterable<Tensor> } {
  const copies = new Map<Tensor, Tensor>();
  return { args: withCopies(args, copies) as A, tensors: copies.values() };
}

function withCopies(value: unknown, copies: Map<Tensor, Tensor>): unknown {
  if (value instanceof Tensor) {
    const handle = copies.get(value) ?? value.reshape(value.shape);
    disown(handle);
    copies.set(value, handle);
    return handle;
  }
  if (Array.isArray(value)) return value.map((each) => withCopies(each, copies));
  if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype)
    return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, withCopies(each, copies)]));
}
