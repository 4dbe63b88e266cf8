/** Opens the reference on one thread, because a page that is not cross-origin isolated has no threads. */
import { type Backend, LockstepError, openBackend, Scope } from "lockstep";

/** Opens the reference. */
export function openReference(): Promise<Backend> {
  return openBackend("wasm", { threads: 1 });
}

/** Returns the answer of `body`, or the library's reason for refusing it. */
export function answerOrReason<T>(body: () => T): T | string {
  try {
    return body();
  } catch (error) {
    if (error instanceof LockstepError) return error.message;
    throw error;
  }
}

/** Runs `body` and disposes of the tensors that it created. */
export function within<T>(body: () => T): T {
  const scope = new Scope();
  try {
    return body();
  } finally {
    scope.dispose();
  }
}
