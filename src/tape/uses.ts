/**
 * Support for leaves whose value is not always in memory, such as sharded parameters: functions that are called before and after
 * each operation that uses the leaf.
 */
import type { Value } from "./value.js";
import type { Variable } from "./variable.js";

/** One run of the forward or backward function of an operation. */
export interface Operation {
  /** The inputs that have `Uses`. */
  readonly leaves: readonly Variable[];
  /** In a backward function: the run of its forward function. */
  readonly forward: Operation | undefined;
  /** In a forward function: the run whose backward function follows this one's. It is set when the backward pass begins. */
  following: Operation | undefined;
  /** In a forward function: whether no other ran between it and a backward pass that begins with its backward function. */
  isTurn: boolean;
  /** In a forward function outside of backward passes: its number among these. Otherwise 0. */
  readonly number: number;
}

/**
 * Functions that are called before and after the forward and the backward function of each operation that has the leaf as an
 * input. Uses may nest.
 */
export interface Uses {
  /**
   * Begins a use. If `lent`, the operation may have kept a handle that `value` returned in an earlier use, so that handle needs
   * memory again.
   */
  enter(lent: boolean, operation: Operation): void;
  /** Ends the innermost use, also if `enter` threw. Returns whether `value` was read during it. */
  leave(operation: Operation): boolean;
  /** Returns the same as `value`, but the caller promises not to keep the handle: a backward function reads the value again. */
  borrow(): Value;
  /** Called before a gradient is added to the leaf's gradient. */
  beforeAccumulate(): void;
}

/** The key under which a leaf stores its `Uses`. */
export const USES = Symbol("uses");

/** Returns the value of `x`. It is valid until the running function of an operation returns. */
export function borrowed(x: Variable): Value {
  return x[USES]?.borrow() ?? x.value;
}

/** The inputs of an operation whose handles its backward function may have kept. */
export type Lent = ReadonlySet<Variable>;

const NONE: Lent = new Set();

/** What `whileUsed` returns. */
export interface Used<R> {
  readonly result: R;
  /** The inputs that the function read by `value`. */
  readonly lent: Lent;
  /** The run, if one of the inputs has uses. */
  readonly operation: Operation | undefined;
}

/** Runs `body`, a function of an operation on these inputs: the backward function of `forward`, if that is given. */
export function whileUsed<R>(
  inputs: readonly Variable[],
  { lent, forward }: { readonly lent: Lent; readonly forward: Operation | undefined },
  body: () => R,
): Used<R> {
  if (!inputs.some((input) => input[USES])) return { result: body(), lent: NONE, operation: undefined };
  const leaves = inputs.filter((input) => input[USES]);
  const number = forward || running ? 0 : ++numbered;
  const operation: Operation = { leaves, forward, following: undefined, isTurn: false, number };
  const entered: Variable[] = [];
  const given = new Set<Variable>();
  try {
    for (const leaf of leaves) {
      entered.push(leaf);
      leaf[USES]?.enter(lent.has(leaf), operation);
    }
    return { result: body(), lent: given, operation };
  } finally {
    for (const leaf of entered) if (leaf[USES]?.leave(operation)) given.add(leaf);
  }
}

/** What `whileUsed` is told of a forward function. */
export const FIRST_RUN = { lent: NONE, forward: undefined } as const;

/** Tells operations, in the order of a backward pass that begins, which one's backward function comes next. */
export function announce(operations: readonly Operation[]): void {
  const [first] = operations;
  if (first) first.isTurn = first.number > 0 && first.number === numbered;
  for (const [i, each] of operations.entries()) {
    const following = operations[i + 1];
    if (following) each.following = following;
  }
}

let running: object | undefined;
/** How many forward functions have begun outside of backward passes. */
let numbered = 0;

/** The backward pass that runs, or undefined outside of one. Another pass is another object. */
export function runningPass(): object | undefined {
  return running;
}

/** Runs `body`, a backward pass. */
export function whileRunning<R>(pass: object, body: () => R): R {
  const before = running;
  running = pass;
  try {
    return body();
  } finally {
    running = before;
  }
}
