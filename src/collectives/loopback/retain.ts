/** Keeps the tensors of enqueued operations alive after the call returns, as a GPU's stream keeps their memory. */
import { disown } from "../../tensor/scope.js";
import type { Storage } from "../../tensor/storage.js";
import { storageOf, Tensor } from "../../tensor/tensor.js";

/** Retained arguments, and the function that releases their tensors. */
export interface RetainedArgs<A> {
  readonly args: A;
  release(): void;
}

/**
 * A copy of plain data in which each tensor is replaced by another handle of the same memory. Its address does not change until
 * `release`, because the operation reads it when it runs.
 */
export function retain<A extends object>(value: A): RetainedArgs<A> {
  const held: Tensor[] = [];
  const fixed: Storage[] = [];
  const copy = (value: unknown): unknown => {
    if (value instanceof Tensor) {
      const handle = value.reshape(value.shape);
      disown(handle);
      held.push(handle);
      const storage = storageOf(handle);
      // bytes on the host are moved back in the order of the stream, before the operation
      storage.moveBack();
      fixed.push(storage.retainFixed());
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
      for (const storage of fixed.splice(0)) storage.releaseFixed();
      for (const tensor of held.splice(0)) tensor.dispose();
    },
  };
}
