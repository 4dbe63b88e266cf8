/** From what native/ throws to the errors of this library. */
import {
  ArgumentError,
  BackendError,
  DisposedError,
  type LockstepError,
  OutOfMemoryError,
} from "../../errors.js";

/**
 * An Error of native/: `code` is one of src/errors.ts's; `wanted` and `free` are bytes, for OUT_OF_MEMORY, of the device unless
 * `message` says otherwise.
 */
interface NativeError extends Error {
  readonly code: string;
  readonly wanted: number;
  readonly free: number;
}

function isNative(error: unknown): error is NativeError {
  return error instanceof Error && "code" in error && "wanted" in error && "free" in error;
}

/** What was thrown, typed where native/ threw it. `live` says how many bytes tensors hold. */
export function translated(error: unknown, live: () => number): unknown {
  return isNative(error) ? typed(error, live()) : error;
}

function typed(error: NativeError, live: number): LockstepError {
  const { code, message, wanted, free } = error;
  switch (code) {
    case "OUT_OF_MEMORY":
      return new OutOfMemoryError(
        wanted,
        live,
        message ||
          `${free} bytes are free on the device; dispose of tensors that are no longer needed, use a scope, or trim() the other backends of this device`,
      );
    case "DISPOSED":
      return new DisposedError("the cuda backend");
    case "ARGUMENT":
      return new ArgumentError(`cuda: ${message}`, { cause: error });
    default:
      return new BackendError(`cuda: ${message}`, { cause: error });
  }
}
