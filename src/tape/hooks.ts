/** Callbacks for leaves whose gradients a backward pass has completed. */
import type { Variable } from "./variable.js";

/** The backward pass during which a hook is called, or the call of `backwardDw`. */
export interface HookedPass {
  /** Registers a function to call once when the pass ends. Functions are called in the order of registration. */
  readonly atEnd: (callback: () => void) => void;
  /** The leaves whose gradients a call of `backwardDw` completes, in this order. Undefined in a backward pass. */
  readonly delayedLeaves?: readonly Variable[] | undefined;
}

/** A hook. It is called with a leaf whose gradient the pass has completed. */
export type PostAccumulateGradHook = (leaf: Variable, pass: HookedPass) => void;

/** The return value of `registerPostAccumulateGradHook`. */
export interface HookHandle {
  /** Removes the hook. A second call does nothing. */
  readonly remove: () => void;
}

/** The hooks of one leaf, in the order of registration. */
export class GradHooks {
  readonly #hooks = new Set<{ readonly hook: PostAccumulateGradHook }>();

  get size(): number {
    return this.#hooks.size;
  }

  add(hook: PostAccumulateGradHook): HookHandle {
    const entry = { hook };
    this.#hooks.add(entry);
    return { remove: () => void this.#hooks.delete(entry) };
  }

  run(leaf: Variable, pass: HookedPass): void {
    for (const { hook } of [...this.#hooks]) hook(leaf, pass);
  }
}

/** The key under which a leaf stores its hooks. */
export const HOOKS = Symbol("hooks");

/** Whether a backward pass has to call hooks of this variable. */
export function hasHooks(variable: Variable): boolean {
  const { [HOOKS]: hooks, requiresGrad, hooksAfterPass } = variable;
  return hooks !== undefined && hooks.size > 0 && requiresGrad && !hooksAfterPass;
}

/** Counts, for each leaf with hooks, the uses whose nodes have not run yet. */
export class PendingUses {
  readonly #counts = new Map<Variable, number>();

  get size(): number {
    return this.#counts.size;
  }

  add(leaf: Variable): void {
    this.#counts.set(leaf, (this.#counts.get(leaf) ?? 0) + 1);
  }

  /** Records that a use has run. Returns whether it was the last use of the leaf. */
  remove(leaf: Variable): boolean {
    const count = (this.#counts.get(leaf) ?? 0) - 1;
    this.#counts.set(leaf, count);
    return count === 0;
  }
}
