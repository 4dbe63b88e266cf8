/**
 * Support for leaves whose value is not always in memory, such as sharded parameters: functions that are called before and after
 * each operation that uses the leaf.
 */
import type { Value } from "./value.js";
import type { Variable } from "./variable.js";

/**
 * Functions that are called before and after the forward and the backward function of each operation that has the leaf as an
 * input. Uses may nest.
 */
export interface Uses {
  /**
   * Begins a use. If `lent`, the operation may have kept a handle that `value` returned in an earlier use, so that handle needs
   * memory again.
   */
  enter(lent: boolean): void;
  /** Ends the innermost use. Returns whether `value` was read during it. */
  leave(): boolean;
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

/** Runs `body`, a function of an operation on these inputs. Returns its result and the inputs that it read by `value`. */
export function whileUsed<R>(
  inputs: readonly Variable[],
  lent: Lent,
  body: () => R,
): { readonly result: R; readonly lent: Lent } {
  if (!inputs.some((input) => input[USES])) return { result: body(), lent: NONE };
  const entered: Variable[] = [];
  const given = new Set<Variable>();
  try {
    for (const input of inputs) {
      input[USES]?.enter(lent.has(input));
      entered.push(input);
    }
    return { result: body(), lent: given };
  } finally {
    for (const input of entered) if (input[USES]?.leave()) given.add(input);
  }
}
