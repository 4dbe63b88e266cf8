/** Converts errors of native/ to those of this library. */
import {
  ArgumentError,
  BackendError,
  DisposedError,
  type LockstepError,
  OutOfMemoryError,
} from "../../errors.js";

/**
 * An Error thrown by native/: `code` is one of src/errors.ts. For OUT_OF_MEMORY, `wanted` and `free` are bytes, of the device
 * unless `message` says otherwise.
 */
interface NativeError extends Error {
  readonly code: string;
  readonly wanted: number;
  readonly free: number;
}

function isNative(error: unknown): error is NativeError {
  return error instanceof Error && "code" in error && "wanted" in error && "free" in error;
}

/** Converts an error of native/ to a typed one and passes others through. `live` returns the bytes that tensors hold. */
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
