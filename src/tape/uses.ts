/** What surrounds each operation that computes with a leaf whose value is not all here: it is brought and taken away again. */
import type { Value } from "./value.js";
import type { Variable } from "./variable.js";

/** Called around the forward and the backward function of each operation that has the leaf among its inputs. Uses nest. */
export interface Uses {
  /** Begins a use. `lent`: its function has the handle that an earlier use gave out by `value`, which needs memory again. */
  enter(lent: boolean): void;
  /** Ends the innermost use. Returns whether `value` was read in it. */
  leave(): boolean;
  /** The value, as `value` gives it, for a function that reads it again in its backward pass where it needs it there. */
  borrow(): Value;
  /** Called before a gradient is added to that of the leaf. */
  beforeAccumulate(): void;
}

/** The key under which a leaf stores what surrounds its uses. */
export const USES = Symbol("uses");

/** The value of `x` until the running function of an operation returns. */
export function borrowed(x: Variable): Value {
  return x[USES]?.borrow() ?? x.value;
}

/** Which inputs of an operation gave out handles that its backward function may have kept. */
export type Lent = ReadonlySet<Variable>;

const NONE: Lent = new Set();

/** Runs `body`, a function of an operation on these inputs, and says which of them it read by `value`. */
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
