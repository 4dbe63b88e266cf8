/**
 * Runs operations. The public `run` of the library's own backends accepts only arguments that an operation of the library has
 * checked and passed to a wrapping backend. The library itself calls the unchecked form.
 */
import { ArgumentError } from "../errors.js";
import { describe } from "../options.js";
import { checkedMemory, registered } from "../tensor/memory.js";
import { isTensor } from "../tensor/tensor.js";
import type { Backend } from "./backend.js";
import type { OpArgs, OpName } from "./ops.js";

type Run = <K extends OpName>(op: K, args: OpArgs[K]) => void;
/** Runs an operation for each element of a list of arguments. */
type RunEach = <K extends OpName>(op: K, list: readonly OpArgs[K][]) => void;

const runs = new WeakMap<object, Run>();
const listRuns = new WeakMap<object, RunEach>();

/** The checked arguments that were passed to the `run` of a third-party backend, with their operation. */
const checkedArgs = new WeakMap<object, OpName>();

/**
 * Registers the unchecked form of `run` of one of the library's own backends, and of `runEach` if the backend runs lists in
 * another way than one element after the other.
 */
export function registerRun(backend: Backend, run: Run, runEach?: RunEach): void {
  runs.set(backend, run);
  if (runEach) listRuns.set(backend, runEach);
}

/**
 * Replaces the unchecked `run` of one of the library's own backends by `wrap(run)`, so that benchmarks and tests can observe
 * operations. The elements of lists are run one by one until then. Returns a function that restores the original.
 */
export function interceptRun(backend: Backend, wrap: (run: Run) => Run): () => void {
  const run = runs.get(backend);
  if (!run) throw new ArgumentError(`interceptRun: ${describe(backend)} is not a backend of the library`);
  const runEach = listRuns.get(backend);
  runs.set(backend, wrap(run));
  listRuns.delete(backend);
  return () => registerRun(backend, run, runEach);
}

/** Runs an operation whose arguments the library has checked. */
export function runOn<K extends OpName>(backend: Backend, op: K, args: OpArgs[K]): void {
  const run = runs.get(backend);
  if (run) {
    run(op, args);
    return;
  }
  // a third-party backend may pass these arguments on, so they must not change after the check
  visit(args, (value) => {
    if (!isTensor(value)) Object.freeze(value);
  });
  checkedArgs.set(args, op);
  backend.run(op, args);
}

/**
 * Runs an operation for each element of a list, as one piece of work if the backend can. No element may write memory that another
 * element uses.
 */
export function runEachOn<K extends OpName>(backend: Backend, op: K, list: readonly OpArgs[K][]): void {
  const runEach = listRuns.get(backend);
  if (runEach) runEach(op, list);
  else for (const args of list) runOn(backend, op, args);
}

/**
 * The public `run` of one of the library's own backends. Throws `ArgumentError` unless an operation of the library has passed
 * `args` to a wrapping backend, and unless this backend allocated the memory of each of their tensors.
 */
export function runChecked<K extends OpName>(backend: Backend, op: K, args: OpArgs[K]): void {
  const memory = checkedMemory(backend);
  if (typeof args !== "object" || args === null || checkedArgs.get(args) !== op)
    throw new ArgumentError(
      "run: the arguments are not those that an operation of the library has passed to a backend; call the operation",
    );
  visit(args, (value) => {
    if (isTensor(value)) memory.require("run", value.address, value.byteLength);
  });
  const run = runs.get(registered(backend) ?? backend);
  run?.(op, args);
}

/** Calls `body` with each tensor, plain object and array in `value`. */
function visit(value: unknown, body: (value: object) => void): void {
  if (typeof value !== "object" || value === null) return;
  if (isTensor(value)) {
    body(value);
    return;
  }
  if (!Array.isArray(value) && Object.getPrototypeOf(value) !== Object.prototype) return;
  body(value);
  for (const each of Object.values(value)) visit(each, body);
}
