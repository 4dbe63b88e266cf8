/** The reference, on one thread: a page that is not cross-origin isolated has no more. */
import { type Backend, openBackend, Scope } from "lockstep";

/** Opens the reference. */
export function openReference(): Promise<Backend> {
  return openBackend("wasm", { threads: 1 });
}

/** Runs `body` and disposes of the tensors that it made. */
export function within<T>(body: () => T): T {
  const scope = new Scope();
  try {
    return body();
  } finally {
    scope.dispose();
  }
}
