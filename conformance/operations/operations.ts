/** The table of operations under test. Its rows are the exports of the families' files (rows.gen.ts). */
import { type Backend, requireBackend } from "../../src/backends/backend.js";
import type { Complete } from "../../src/options.js";
import { Scope } from "../../src/tensor/scope.js";
import { expectNoLeak, GuardedBackend } from "./guarded.js";
import type { Answer, Operation } from "./operation.js";
import { ROWS } from "./rows.gen.js";

/** The input of each operation, as plain data. */
export type Cases = {
  readonly [K in keyof typeof ROWS]: (typeof ROWS)[K] extends Operation<infer C> ? C : never;
};

/** The name of an operation that has laws, a key of `OPERATIONS`. */
export type OperationName = keyof Cases;

/** Every operation that has laws: its inputs, how a backend runs it, and its oracle. */
export const OPERATIONS: { readonly [K in OperationName]: Operation<Cases[K]> } = ROWS;

/** The names of all operations that have laws. */
export const OPERATION_NAMES = Object.keys(ROWS) as readonly OperationName[];

/**
 * An implementation under test: for each operation that it has, a function from plain data to plain data. Answers have the names
 * of the table (`codes`; `rowwise.data`, `rowwise.scaleInv`, ...).
 */
export type Subject = {
  readonly [K in OperationName]?: ((input: Cases[K]) => Answer | Promise<Answer>) | undefined;
};

/** The independent oracles, in exact arithmetic. They share no code with the reference. */
export const ORACLE: Complete<Subject> = mapOperations((_, operation) => operation.oracle);

/**
 * A backend as a subject. Outputs start as poison between fences, and a run that leaks memory fails. Throws
 * `ArgumentError` if `backend` is not a backend, `DisposedError` for a disposed one.
 */
export function backendSubject(backend: Backend): Complete<Subject> {
  requireBackend("backendSubject", backend);
  const guarded = new GuardedBackend(backend);
  return mapOperations((_, { run }) => (input) => {
    const before = backend.memoryUse();
    const answer = inScope(() => run(guarded, input));
    expectNoLeak(backend, before);
    return answer;
  });
}

function inScope<T>(body: () => T): T {
  using _scope = new Scope();
  return body();
}

type Made<K extends OperationName> = (input: Cases[K]) => Answer;

function mapOperations(
  make: <C>(name: OperationName, operation: Operation<C>) => (input: C) => Answer,
): Complete<Subject> {
  const entry = <K extends OperationName>(name: K): Made<K> => make(name, OPERATIONS[name]);
  const subject: { -readonly [K in OperationName]?: Made<K> } = {};
  const set = <K extends OperationName>(name: K): void => {
    subject[name] = entry(name) as (typeof subject)[K];
  };
  for (const name of OPERATION_NAMES) set(name);
  return subject as Complete<Subject>;
}
