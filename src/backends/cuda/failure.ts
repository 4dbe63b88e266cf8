/** Conversion of errors thrown by native/ to the error classes of this library. */
import {
  ArgumentError,
  BackendError,
  DisposedError,
  type LockstepError,
  OutOfMemoryError,
} from "../../errors.js";

/**
 * An error thrown by native/. `code` is an error code of src/errors.ts. For OUT_OF_MEMORY, `wanted` is the number of bytes
 * requested and `free` the number of bytes free on the device; if the host ran out of memory, `message` says so.
 */
interface NativeError extends Error {
  readonly code: string;
  readonly wanted: number;
  readonly free: number;
}

function isNative(error: unknown): error is NativeError {
  return error instanceof Error && "code" in error && "wanted" in error && "free" in error;
}

/**
 * Converts an error thrown by native/ to a typed error. Other errors are returned unchanged. `live` returns the bytes of live
 * tensors.
 */
export function libraryError(error: unknown, live: () => number): unknown {
  return isNative(error) ? typedError(error, live()) : error;
}

function typedError(error: NativeError, live: number): LockstepError {
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
