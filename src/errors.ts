/** All errors that this library throws deliberately, each with a stable code that programs can switch on. */

import { printable } from "./printable.js";

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

/**
 * The base of all errors. The message says what was given, what was needed and what to do. It is one line without terminal
 * control characters, whatever names it contains.
 */
export class LockstepError extends Error {
  constructor(
    /** The class of the error as a constant; messages may change, codes do not. */
    readonly code: ErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(printable(message), options);
    this.name = new.target.name;
  }
}

/** An option or value outside its domain. */
export class ArgumentError extends LockstepError {
  constructor(message: string, options?: ErrorOptions) {
    super("ARGUMENT", message, options);
  }
}

/** A shape that an operation or a format cannot take. */
export class ShapeError extends LockstepError {
  constructor(message: string) {
    super("SHAPE", message);
  }
}

/** An element type that an operation cannot take. */
export class DTypeError extends LockstepError {
  constructor(message: string) {
    super("DTYPE", message);
  }
}

/** A backend does not support an operation; `reason` is its answer. */
export class UnsupportedError extends LockstepError {
  constructor(
    /** The operation that was asked for. */
    readonly op: string,
    /** The backend's answer: what it does not do, and what to use instead. */
    readonly reason: string,
  ) {
    super("UNSUPPORTED", `${op}: ${reason}`);
  }
}

/** An allocation failed; all existing tensors are still usable. */
export class OutOfMemoryError extends LockstepError {
  constructor(
    /** The number of bytes requested. */
    readonly wanted: number,
    /** The number of bytes in use then. */
    readonly live: number,
    hint: string,
  ) {
    super("OUT_OF_MEMORY", `out of memory: wanted ${wanted} bytes with ${live} bytes live; ${hint}`);
  }
}

/** A tensor or backend was used after it was disposed. */
export class DisposedError extends LockstepError {
  constructor(what: string) {
    super("DISPOSED", `${what} was used after it was disposed`);
  }
}

/** A backend could not be opened, or broke. */
export class BackendError extends LockstepError {
  constructor(message: string, options?: ErrorOptions) {
    super("BACKEND", message, options);
  }
}

/** A file could not be read, written or understood. */
export class FileError extends LockstepError {
  constructor(message: string, options?: ErrorOptions) {
    super("FILE", message, options);
  }
}

/** A required optional package is not installed; the message has the command that installs it. */
export class MissingPackageError extends LockstepError {
  /** `needs` are the packages missing, each with its range: `fast-check@^4.10.2`. */
  constructor(
    /** The feature that needs them. */
    readonly feature: string,
    /** The packages missing, each with its range. */
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
 * Why ranks could not go on together: they called different things (`disagreement`), one is gone (`lost`), one did not come in
 * time (`deadline`), one ended the group (`aborted`), or one was not let in (`refused`).
 */
export type DistributedFailure = "disagreement" | "lost" | "deadline" | "aborted" | "refused";

/** A collective operation could not be finished, or a group not be formed. The group is of no use afterwards. */
export class DistributedError extends LockstepError {
  constructor(
    /** Why. */
    readonly failure: DistributedFailure,
    /** What this rank was doing, by the name of the method. */
    readonly operation: string,
    /** The rank that it failed by; undefined where no single one did. */
    readonly rank: number | undefined,
    message: string,
    options?: ErrorOptions,
  ) {
    super("DISTRIBUTED", `${operation}: ${message}`, options);
  }
}
