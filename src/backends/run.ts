/**
 * Runs of operations. `run` of the library's own backends takes only arguments that an operation of the library has checked, from
 * backends that wrap them; the library itself calls the form that checks nothing.
 */
import { ArgumentError } from "../errors.js";
import { describe } from "../options.js";
import { checkedMemory, registered } from "../tensor/memory.js";
import { isTensor } from "../tensor/tensor.js";
import type { Backend } from "./backend.js";
import type { OpArgs, OpName } from "./ops.js";

type Run = <K extends OpName>(op: K, args: OpArgs[K]) => void;

const runs = new WeakMap<object, Run>();

/** The arguments that were passed to the `run` of a backend of another program, with the operation. */
const checkedArgs = new WeakMap<object, OpName>();

/** Registers the unchecked form of `run` of one of the library's own backends. */
export function registerRun(backend: Backend, run: Run): void {
  runs.set(backend, run);
}

/**
 * Puts `wrap(run)` in the place of what runs the operations of one of the library's own backends. Benchmarks and tests observe
 * operations by it. Returns a function that takes it away.
 */
export function interceptRun(backend: Backend, wrap: (run: Run) => Run): () => void {
  const run = runs.get(backend);
  if (!run) throw new ArgumentError(`interceptRun: ${describe(backend)} is not a backend of the library`);
  runs.set(backend, wrap(run));
  return () => runs.set(backend, run);
}

/** Runs an operation whose arguments the library has checked. */
export function runOn<K extends OpName>(backend: Backend, op: K, args: OpArgs[K]): void {
  const run = runs.get(backend);
  if (run) {
    run(op, args);
    return;
  }
  // another program's backend may pass its arguments on, so they must not change after the check
  visit(args, (value) => {
    if (!isTensor(value)) Object.freeze(value);
  });
  checkedArgs.set(args, op);
  backend.run(op, args);
}

/**
 * `run` of one of the library's own backends, as programs see it. Throws `ArgumentError` unless an operation of the library has
 * passed `args` to a backend, which passes them on, and unless each of their tensors lies in memory that this backend has
 * allocated.
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
