/** Keeps the tensors of enqueued operations alive after the call returns, as a GPU's stream keeps their memory. */
import { disown } from "../../tensor/scope.js";
import { Tensor } from "../../tensor/tensor.js";

/** Retained arguments, and the function that releases their tensors. */
export interface RetainedArgs<A> {
  readonly args: A;
  release(): void;
}

/** A copy of plain data in which each tensor is replaced by another handle of the same memory. */
export function retain<A extends object>(value: A): RetainedArgs<A> {
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
    const entries = Object.entries(value).map(([key, property]) => [key, copy(property)] as const);
    // values without tensors are not copied
    if (held.length === before) return value;
    return Array.isArray(value) ? entries.map(([, property]) => property) : Object.fromEntries(entries);
  };
  return {
    args: copy(value) as A,
    release() {
      for (const tensor of held.splice(0)) tensor.dispose();
    },
  };
}
