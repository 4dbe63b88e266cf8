/** The options of a conformance run. All are checked first, so that a run that tests nothing does not pass. */
import * as fc from "fast-check";
import { type Backend, openedBackend } from "../../src/backends/backend.js";
import { ArgumentError } from "../../src/errors.js";
import {
  anything,
  boolean,
  callable,
  type Domain,
  describe,
  domain,
  instance,
  integer,
  listOf,
  membersOfPlain,
  needed,
  nested,
  type OptionTable,
  optionsOf,
  outside,
  text,
} from "../../src/options.js";
import type { Supported } from "../arbitraries/supported.js";
import { type Cases, OPERATION_NAMES, type OperationName, type Subject } from "../operations/operations.js";

/** Arbitraries that replace those in the table of operations. */
export type Inputs = { readonly [K in OperationName]?: fc.Arbitrary<Cases[K]> };

/** The inputs that a subject supports, by operation. */
export type SupportedInputs = { readonly [K in OperationName]?: Supported };

/** The options of a conformance run; all are optional. */
export interface ConformanceOptions {
  /** Inputs for each law, from 1. Default 100. */
  readonly runs?: number | undefined;
  /** An integer of 32 bits. Default 1. The same seed draws the same inputs. */
  readonly seed?: number | undefined;
  /** The operations to test. Default: all that the subject has. */
  readonly operations?: readonly string[] | undefined;
  /** Arbitraries to draw from, for kernels that support only some inputs. Default: those in the table of operations. */
  readonly inputs?: Inputs | undefined;
  /**
   * The inputs that the subject supports of each operation: the allowed values of fields. Inputs are drawn among these. Default:
   * everything. `inputs` take precedence.
   */
  readonly supported?: SupportedInputs | undefined;
  /** Whether to skip the laws that do not compare with the reference, because they draw their own inputs. Default false. */
  readonly comparing?: boolean | undefined;
  /** Replays one counterexample: the law and path of a failure, with its seed. */
  readonly replay?: { readonly law: string; readonly path: string } | undefined;
  /** Called after each run. */
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

/** The backend to test, and the options of the run. */
export interface BackendOptions extends ConformanceOptions {
  /** The backend to test. The run does not dispose of it. */
  readonly backend: Backend;
}

/** The progress of a conformance run. */
export interface Progress {
  /** The law that is being checked. */
  readonly law: string;
  /** The operation of that law. */
  readonly operation: OperationName;
  /** Completed runs over all laws. Shrinking adds runs. */
  readonly done: number;
  /** The planned runs of all laws. */
  readonly planned: number;
}

/** An option table that has the same domain for every operation. */
function byOperation<T>(domain: Domain): OptionTable<T> {
  return Object.fromEntries(OPERATION_NAMES.map((name) => [name, domain])) as OptionTable<T>;
}

/** Checks that a subject is an object of functions, each named after an operation. */
export const checkSubject = optionsOf<Subject>(byOperation(callable));

const checkInputs = optionsOf<Inputs>(byOperation(instance(fc.Arbitrary, "an arbitrary of fast-check")));

const someValues = listOf(anything);

/** The domain of the supported fields of one operation. */
export const supportedFields: Domain = (caller, name, value) => {
  const fields = membersOfPlain(caller, name, value);
  if (!fields) throw outside(caller, name, value, "lists of values by field");
  return Object.fromEntries(fields.map(([key, list]) => [key, someValues(caller, `${name}.${key}`, list)]));
};

const checkSupported = optionsOf<SupportedInputs>(byOperation(supportedFields));

/** The domain of `runs`. */
export const runCount = integer(1, 2 ** 31 - 1);

const operationName: Domain = (_user, _name, value) => {
  if (OPERATION_NAMES.some((each) => each === value)) return value as OperationName;
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

/** The domains of the options of a run. */
export const RUN_OPTIONS: OptionTable<ConformanceOptions> = {
  runs: runCount,
  // fast-check distinguishes seeds of 32 bits.
  seed: integer(-(2 ** 31), 2 ** 31 - 1),
  operations: operationNames,
  inputs: nested(checkInputs),
  supported: nested(checkSupported),
  comparing: boolean,
  replay: nested(checkReplay),
  onProgress: callable,
};

export const checkOptions = optionsOf<ConformanceOptions>(RUN_OPTIONS);

export const checkBackendOptions = optionsOf<BackendOptions>(
  {
    ...RUN_OPTIONS,
    backend: needed(openedBackend),
  },
  "backendOptions",
);

/** The operations of the subject that the run tests. Throws `ArgumentError` if there are none. */
export function operationsOf(
  subject: Subject,
  names: readonly string[] | undefined,
): readonly OperationName[] {
  const selected = OPERATION_NAMES.filter((name) => names?.includes(name) ?? subject[name]);
  if (selected.length === 0)
    throw new ArgumentError("the subject has no operation, so there is nothing to check");
  return selected.map((name) => requireOperation("subject", subject, name));
}

/** Returns `name` if the subject has that operation, so that no run passes without testing anything. */
export function requireOperation(label: string, subject: Subject, name: OperationName): OperationName {
  if (subject[name]) return name;
  throw new ArgumentError(
    `the ${label} has no ${name}; it has ${Object.keys(subject).join(", ") || "nothing"}`,
  );
}
