/**
 * Hooks of leaves whose value is not always in memory, such as sharded parameters. They are called before and after each
 * operation that uses the leaf.
 */
import type { Value } from "./value.js";
import type { Variable } from "./variable.js";

/** One run of the forward or backward function of an operation. */
export interface Operation {
  /** The inputs that have `UseHooks`. */
  readonly leaves: readonly Variable[];
  /** In a backward run: the run of the forward function. Otherwise undefined. */
  readonly forward: Operation | undefined;
  /**
   * In a forward run: the forward run whose backward function runs right after the backward function of this one. It is set when
   * the backward pass begins.
   */
  nextInBackward: Operation | undefined;
  /** In a forward run: whether its backward function began the next backward pass, with no other forward run in between. */
  isLastForward: boolean;
  /** In a forward run outside of backward passes: its number, from 1. Otherwise 0. */
  readonly sequence: number;
}

/**
 * Called before and after the forward and the backward function of each operation that has the leaf as an input. Uses may nest.
 */
export interface UseHooks {
  /**
   * Called before the function runs. If `retained`, the operation may have kept a handle that `value` returned in its forward
   * run, so that handle needs memory again.
   */
  beforeUse(retained: boolean, operation: Operation): void;
  /** Called after the function has run, and also if `beforeUse` threw. Returns whether the function has read `value`. */
  afterUse(operation: Operation): boolean;
  /** Returns the same as `value`. The caller must not keep the handle: a backward function reads the value again. */
  transientValue(): Value;
  /** Called before a gradient is added to the leaf's gradient. */
  beforeAccumulate(): void;
}

/** The key under which a leaf stores its `UseHooks`. */
export const USE_HOOKS = Symbol("useHooks");

/** Returns the value of `x`. It is valid until the running function of an operation returns. */
export function transientValue(x: Variable): Value {
  return x[USE_HOOKS]?.transientValue() ?? x.value;
}

/** The inputs of an operation whose `value` its forward function has read, so that its backward function may hold the handle. */
export type RetainedInputs = ReadonlySet<Variable>;

const NONE: RetainedInputs = new Set();

/** The result of `runOperation`. */
export interface OperationResult<R> {
  readonly result: R;
  readonly retained: RetainedInputs;
  /** The run. Undefined if no input has hooks. */
  readonly operation: Operation | undefined;
}

/** Runs `body`, a function of an operation on `inputs`. With `forward` it is the backward function of that run. */
export function runOperation<R>(
  inputs: readonly Variable[],
  { retained, forward }: { readonly retained: RetainedInputs; readonly forward: Operation | undefined },
  body: () => R,
): OperationResult<R> {
  const leaves = inputs.filter((input) => input[USE_HOOKS]);
  if (leaves.length === 0) return { result: body(), retained: NONE, operation: undefined };
  const sequence = forward || activePass ? 0 : ++forwardCount;
  const operation: Operation = { leaves, forward, nextInBackward: undefined, isLastForward: false, sequence };
  const started: Variable[] = [];
  const read = new Set<Variable>();
  try {
    for (const leaf of leaves) {
      started.push(leaf);
      leaf[USE_HOOKS]?.beforeUse(retained.has(leaf), operation);
    }
    return { result: body(), retained: read, operation };
  } finally {
    for (const leaf of started) if (leaf[USE_HOOKS]?.afterUse(operation)) read.add(leaf);
  }
}

/** The second argument of `runOperation` for a forward function. */
export const FORWARD_RUN = { retained: NONE, forward: undefined } as const;

/** Records in each forward run its place in a backward pass that begins. `operations` are in the order of their backward runs. */
export function setBackwardOrder(operations: readonly Operation[]): void {
  const [first] = operations;
  if (first) first.isLastForward = first.sequence > 0 && first.sequence === forwardCount;
  for (const [i, operation] of operations.entries()) {
    const next = operations[i + 1];
    if (next) operation.nextInBackward = next;
  }
}

let activePass: object | undefined;
/** The number of forward runs outside of backward passes so far. */
let forwardCount = 0;

/** Returns the running backward pass, or undefined outside of one. Each pass is a different object. */
export function currentPass(): object | undefined {
  return activePass;
}

/** Runs `body` as the backward pass `pass`. */
export function runPass<R>(pass: object, body: () => R): R {
  const outer = activePass;
  activePass = pass;
  try {
    return body();
  } finally {
    activePass = outer;
  }
}
