/** What a conformance run is asked for, checked before anything runs: nothing holds only because nothing was run. */
import * as fc from "fast-check";
import { type Backend, requireBackend } from "../../src/backends/backend.js";
import { ArgumentError } from "../../src/errors.js";
import {
  callable,
  type Domain,
  describe,
  domain,
  instance,
  integer,
  listOf,
  needed,
  nested,
  type OptionTable,
  optionsOf,
  text,
} from "../../src/options.js";
import { type Cases, OPERATION_NAMES, type OperationName, type Subject } from "../operations/operations.js";

/** Inputs for some operations in place of those in the table. */
export type Inputs = { readonly [K in OperationName]?: fc.Arbitrary<Cases[K]> };

/** What a conformance run is asked for; every field may be left out. */
export interface ConformanceOptions {
  /** Inputs for each law, from 1. Default 100. */
  readonly runs?: number | undefined;
  /** An integer of 32 bits. Default 1. The same seed draws the same inputs. */
  readonly seed?: number | undefined;
  /** Default: all that the subject has. */
  readonly operations?: readonly string[] | undefined;
  /** What to draw, for kernels that do only some of an operation. Default: all there is. */
  readonly inputs?: Inputs | undefined;
  /** Replays one counterexample: the law and path of a failure, under its seed. */
  readonly replay?: { readonly law: string; readonly path: string } | undefined;
  /** Called as runs are done. */
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

/** What is held, and how. */
export interface BackendOptions extends ConformanceOptions {
  /** What is held to the laws; it stays open. */
  readonly backend: Backend;
}

/** How far a conformance run is. */
export interface Progress {
  /** The law that is being checked. */
  readonly law: string;
  /** The operation that it is about. */
  readonly operation: OperationName;
  /** Runs done and planned, over all laws; shrinking adds to those done. */
  readonly done: number;
  /** Runs of all laws together. */
  readonly planned: number;
}

/** A table with one domain for every operation. */
function byOperation<T>(each: Domain): OptionTable<T> {
  return Object.fromEntries(OPERATION_NAMES.map((name) => [name, each])) as OptionTable<T>;
}

/** An object of functions, each under an operation's name. */
export const checkSubject = optionsOf<Subject>(byOperation(callable));

const checkInputs = optionsOf<Inputs>(byOperation(instance(fc.Arbitrary, "an arbitrary of fast-check")));

/** Inputs that a check may draw. */
export const runCount = integer(1, 2 ** 31 - 1);

const operationName: Domain = (_user, _name, value) => {
  if (OPERATION_NAMES.some((each) => each === value)) return;
  throw new ArgumentError(
    `no operation is named ${describe(value)}; there are ${OPERATION_NAMES.join(", ")}`,
  );
};

export const operationNames = listOf(operationName);

const checkReplay = optionsOf<NonNullable<ConformanceOptions["replay"]>>({
  law: needed(text),
  path: needed(
    domain(
      (value) => typeof value === "string" && /^(\d+(:\d+)*)?$/.test(value),
      "the path of a failure, integers between colons",
    ),
  ),
});

const TABLE: OptionTable<ConformanceOptions> = {
  runs: runCount,
  // seeds that fast-check keeps apart
  seed: integer(-(2 ** 31), 2 ** 31 - 1),
  operations: operationNames,
  inputs: nested(checkInputs),
  replay: nested(checkReplay),
  onProgress: callable,
};

export const checkOptions = optionsOf<ConformanceOptions>(TABLE);

export const checkBackendOptions = optionsOf<BackendOptions>({
  ...TABLE,
  backend: needed((user, _name, value) => requireBackend(user, value as BackendOptions["backend"])),
});

/** The operations of the subject that are asked for: at least one. Throws `ArgumentError` for none. */
export function operationsOf(
  subject: Subject,
  names: readonly string[] | undefined,
): readonly OperationName[] {
  const asked = OPERATION_NAMES.filter((name) => names?.includes(name) ?? subject[name]);
  if (asked.length === 0)
    throw new ArgumentError("the subject has no operation, so there is nothing to check");
  return asked.map((name) => requireOperation("subject", subject, name));
}

/** Nothing holds only because nothing was run. */
export function requireOperation(what: string, subject: Subject, name: OperationName): OperationName {
  if (subject[name]) return name;
  throw new ArgumentError(
    `the ${what} has no ${name}; it has ${Object.keys(subject).join(", ") || "nothing"}`,
  );
}
