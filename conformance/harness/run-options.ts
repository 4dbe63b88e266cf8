/** What a conformance run is asked for, checked before anything runs: nothing holds only because nothing was run. */
import * as fc from "fast-check";
import { ArgumentError } from "../../src/errors.js";
import { OPERATION_NAMES, type OperationName, type Subject } from "./operations.js";

/** A check of one option's value: what it must be, where it is not. */
type Fault = (value: unknown) => string | undefined;

function optional(fault: Fault): Fault {
  return (value) => (value === undefined ? undefined : fault(value));
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function integer(least: number, most: number): Fault {
  return (value) =>
    Number.isInteger(value) && (value as number) >= least && (value as number) <= most
      ? undefined
      : `an integer from ${least} to ${most}`;
}

/** Inputs that a check may draw. */
export const runsFault = integer(1, 2 ** 31 - 1);

/** Seeds that fast-check keeps apart. */
const seedFault = integer(-(2 ** 31), 2 ** 31 - 1);

const operationsFault: Fault = (value) =>
  Array.isArray(value) && value.length > 0 ? undefined : "a list of names with something in it";

const inputsFault: Fault = (value) => {
  if (!isRecord(value)) return "an object of arbitraries by operation";
  for (const [name, arbitrary] of Object.entries(value)) {
    if (!OPERATION_NAMES.some((each) => each === name)) return `of operations; "${name}" is none`;
    if (!(arbitrary instanceof fc.Arbitrary)) return `of arbitraries of fast-check; that of ${name} is none`;
  }
  return undefined;
};

const replayFault: Fault = (value) =>
  isRecord(value) && typeof value.law === "string" && isPath(value.path) && Object.keys(value).length === 2
    ? undefined
    : "{ law, path }, as a failure has them: a law's name, and integers between colons";

function isPath(value: unknown): boolean {
  return typeof value === "string" && /^(\d+(:\d+)*)?$/.test(value);
}

const FAULTS: Readonly<Record<string, Fault>> = {
  runs: optional(runsFault),
  seed: optional(seedFault),
  operations: optional(operationsFault),
  inputs: optional(inputsFault),
  replay: optional(replayFault),
  onProgress: optional((value) => (typeof value === "function" ? undefined : "a function")),
};

/** Throws `ArgumentError` for an option that there is not, and for a value that one cannot have. */
export function requireOptions(caller: string, options: unknown): void {
  if (!isRecord(options))
    throw new ArgumentError(`${caller}: options are an object; ${show(options)} was given`);
  for (const [name, value] of Object.entries(options)) {
    const fault = Object.hasOwn(FAULTS, name) ? FAULTS[name] : undefined;
    if (!fault)
      throw new ArgumentError(
        `${caller}: there is no option ${JSON.stringify(name)}; there are ${Object.keys(FAULTS).join(", ")}`,
      );
    const needed = fault(value);
    if (needed !== undefined)
      throw new ArgumentError(`${caller}: ${name} is ${show(value)}; it must be ${needed}`);
  }
}

function show(value: unknown): string {
  return fc.stringify(value).slice(0, 80);
}

/** Throws `ArgumentError` unless a subject is an object of functions, each under an operation's name. */
export function requireSubject(what: string, subject: unknown): void {
  if (!isRecord(subject))
    throw new ArgumentError(
      `the ${what} must be an object with a function for each operation; ${show(subject)} was given`,
    );
  for (const [name, run] of Object.entries(subject)) {
    if (!OPERATION_NAMES.some((each) => each === name))
      throw new ArgumentError(
        `the ${what} has "${name}", which is no operation; there are ${OPERATION_NAMES.join(", ")}`,
      );
    if (run !== undefined && typeof run !== "function")
      throw new ArgumentError(`the ${what}'s ${name} is ${show(run)}; it must be a function`);
  }
}

/** The operations of the subject that are asked for: at least one. Throws `ArgumentError` for names that are none, and for none. */
export function operationsOf(
  subject: Subject,
  names: readonly string[] | undefined,
): readonly OperationName[] {
  const asked = names ?? OPERATION_NAMES.filter((name) => subject[name]);
  if (asked.length === 0)
    throw new ArgumentError("the subject has no operation, so there is nothing to check");
  return [...new Set(asked)].map((name) => {
    const known = OPERATION_NAMES.find((each) => each === name);
    if (known) return requireOperation("subject", subject, known);
    throw new ArgumentError(`no operation is named ${show(name)}; there are ${OPERATION_NAMES.join(", ")}`);
  });
}

/** Nothing holds only because nothing was run. */
export function requireOperation(what: string, subject: Subject, name: OperationName): OperationName {
  if (subject[name]) return name;
  throw new ArgumentError(
    `the ${what} has no ${name}; it has ${Object.keys(subject).join(", ") || "nothing"}`,
  );
}
