/** Arguments that outlive the call: work that waits holds the tensors it was given, as a GPU's stream holds their memory. */
import { disown } from "../../tensor/scope.js";
import { Tensor } from "../../tensor/tensor.js";

/** Arguments, and what gives their tensors back. */
export interface Retained<A> {
  readonly args: A;
  release(): void;
}

/** A copy of plain data whose tensors are other handles of the same memory. */
export function retain<A extends object>(given: A): Retained<A> {
  const held: Tensor[] = [];
  const copy = (value: unknown): unknown => {
    if (value instanceof Tensor) {
      const handle = value.reshape(value.shape);
      disown(handle);
      held.push(handle);
      return handle;
    }
    if (typeof value !== "object" || value === null) return value;
    if (!Array.isArray(value) && Object.getPrototypeOf(value) !== Object.prototype) return value;
    const before = held.length;
    const entries = Object.entries(value).map(([key, each]) => [key, copy(each)] as const);
    // what holds no tensor stays itself
    if (held.length === before) return value;
    return Array.isArray(value) ? entries.map(([, each]) => each) : Object.fromEntries(entries);
  };
  return {
    args: copy(given) as A,
    release() {
      for (const each of held.splice(0)) each.dispose();
    },
  };
}
