/** The errors that this library throws on purpose. Each has a stable code that programs can switch on. */

import { printable } from "./text/printable.js";

export type ErrorCode =
  | "ARGUMENT"
  | "SHAPE"
  | "DTYPE"
  | "UNSUPPORTED"
  | "OUT_OF_MEMORY"
  | "DISPOSED"
  | "BACKEND"
  | "FILE"
  | "MISSING_PACKAGE"
  | "DISTRIBUTED";

/** The maximum length of a message, in characters before unprintable ones are escaped. */
const MAX_MESSAGE = 4096;

/**
 * Returns a message, or the beginning and the end of one that is too long, because a name or a value in it is. The end says what
 * to do.
 */
function bounded(message: string): string {
  if (message.length <= MAX_MESSAGE) return message;
  const half = MAX_MESSAGE / 2;
  const left = message.length - MAX_MESSAGE;
  return `${message.slice(0, half)}… (${left} characters left out) …${message.slice(-half)}`;
}

/**
 * The base class of all errors of this library. The message says what was given, what was needed and what to do. It is one line
 * without terminal control characters, even if names in it contain some.
 */
export class LockstepError extends Error {
  constructor(
    /** A constant that identifies the class of the error. Messages may change between versions; codes do not. */
    readonly code: ErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(printable(bounded(message)), options);
    this.name = new.target.name;
  }
}

/** An invalid argument: an unknown option, or a value that is not allowed. */
export class ArgumentError extends LockstepError {
  constructor(message: string, options?: ErrorOptions) {
    super("ARGUMENT", message, options);
  }
}

/** A shape that an operation or a format does not allow. */
export class ShapeError extends LockstepError {
  constructor(message: string) {
    super("SHAPE", message);
  }
}

/** A dtype that an operation does not allow. */
export class DTypeError extends LockstepError {
  constructor(message: string) {
    super("DTYPE", message);
  }
}

/** An operation that a backend does not support. */
export class UnsupportedError extends LockstepError {
  constructor(
    /** The operation that was requested. */
    readonly op: string,
    /** The backend's reason: what it does not support, and what to use instead. */
    readonly reason: string,
  ) {
    super("UNSUPPORTED", `${op}: ${reason}`);
  }
}

/** A failed allocation. All existing tensors are still usable. */
export class OutOfMemoryError extends LockstepError {
  constructor(
    /** The number of bytes that were requested. */
    readonly wanted: number,
    /** The number of bytes that were in use at that time. */
    readonly live: number,
    hint: string,
  ) {
    super("OUT_OF_MEMORY", `out of memory: wanted ${wanted} bytes with ${live} bytes live; ${hint}`);
  }
}

/** A tensor, backend or other object that was used after it was disposed of. */
export class DisposedError extends LockstepError {
  constructor(what: string) {
    super("DISPOSED", `${what} was used after it was disposed`);
  }
}

/** A backend that could not be opened, or that failed. */
export class BackendError extends LockstepError {
  constructor(message: string, options?: ErrorOptions) {
    super("BACKEND", message, options);
  }
}

/** A file that could not be read, written or parsed. */
export class FileError extends LockstepError {
  constructor(message: string, options?: ErrorOptions) {
    super("FILE", message, options);
  }
}

/** A required optional package that is not installed. The message contains the command that installs it. */
export class MissingPackageError extends LockstepError {
  /** `needs` lists the missing packages, each with its version range, such as `fast-check@^4.10.2`. */
  constructor(
    /** The feature that needs the packages. */
    readonly feature: string,
    /** The missing packages, each with its version range. */
    readonly needs: readonly string[],
    options?: ErrorOptions,
  ) {
    const [are, them] = needs.length === 1 ? ["is", "it"] : ["are", "them"];
    super(
      "MISSING_PACKAGE",
      `${feature} needs ${needs.join(" and ")}, which ${are} not installed; npm install --save-dev ${needs.join(" ")} installs ${them}`,
      options,
    );
  }
}

/**
 * Why a collective operation failed. `disagreement`: the ranks called different operations. `lost`: a rank is gone. `deadline`:
 * a rank did not arrive in time. `aborted`: a rank ended the group. `refused`: a rank was not admitted.
 */
export type DistributedFailure = "disagreement" | "lost" | "deadline" | "aborted" | "refused";

/**
 * A collective operation that could not be finished, or a group that could not be formed. The group cannot be used afterwards.
 */
export class DistributedError extends LockstepError {
  constructor(
    /** The reason of the failure. */
    readonly failure: DistributedFailure,
    /** The method that this rank was running. */
    readonly operation: string,
    /** The rank that caused the failure, or undefined if no single rank did. */
    readonly rank: number | undefined,
    message: string,
    options?: ErrorOptions,
  ) {
    super("DISTRIBUTED", `${operation}: ${message}`, options);
  }
}

/** The message of something that was thrown, which may be no Error. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
