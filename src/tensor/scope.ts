/** Deterministic lifetimes: a scope disposes of what was created in it and not kept. */

import { ArgumentError } from "../errors.js";
import { describe } from "../options.js";

/** Where what is owned says by whom; a field, because a map of owners costs more than the tensors do. */
const OWNER = Symbol("owner");

/** Something with a lifetime that a scope can own. */
export interface Owned {
  /** @internal */
  [OWNER]?: Scope | undefined;
  /** Ends its life. Safe to call twice. */
  dispose(): void;
  /** The things that live and die with it, where it is made of several. */
  readonly members?: readonly Owned[];
}

/** Hosts without explicit resource management lack the symbol that `using` looks up. */
if (!Symbol.dispose) Object.defineProperty(Symbol, "dispose", { value: Symbol("Symbol.dispose") });

const open: Scope[] = [];

/** As `own`, of what is known to have a lifetime. */
let take: (scope: Scope, value: Owned) => void;

/**
 * Owns every tensor created while it is the innermost open scope:
 *
 *     using scope = new Scope();
 *     return scope.keep(dequantize(quantizer.quantize(x)));
 *
 * A scope is for synchronous code: one that stays open across an `await` also owns what other code
 * creates meanwhile.
 */
export class Scope {
  static {
    take = (scope, value) => scope.#take(value);
  }

  readonly #owned = new Set<Owned>();
  readonly #outer = open.at(-1);

  constructor() {
    open.push(this);
  }

  /**
   * Hands `value` to the enclosing scope, or to the caller where there is none.
   *
   * @throws `ArgumentError` for what has no `dispose`.
   */
  keep<T extends Owned>(value: T): T {
    requireOwned("keep", value);
    for (const member of value.members ?? [value]) {
      if (!this.#owned.delete(member)) continue;
      member[OWNER] = undefined;
      if (this.#outer) this.#outer.#take(member);
    }
    return value;
  }

  /** Takes `value` in, to be disposed of with the scope. Throws `ArgumentError` for what has no `dispose`. */
  own(value: Owned): void {
    requireOwned("own", value);
    this.#take(value);
  }

  #take(value: Owned): void {
    this.#owned.add(value);
    value[OWNER] = this;
  }

  /** Lets `value` go without handing it to anyone; it is the caller's. Throws `ArgumentError` for what has no `dispose`. */
  release(value: Owned): void {
    requireOwned("release", value);
    this.#owned.delete(value);
    value[OWNER] = undefined;
  }

  /** Closes the scope and disposes of everything that it owns still. Safe to call twice. */
  dispose(): void {
    if (open.at(-1) === this) open.pop();
    else if (open.includes(this)) open.splice(open.indexOf(this), 1);
    if (this.#owned.size === 0) return;
    for (const value of this.#owned) value.dispose();
    this.#owned.clear();
  }

  /** As `dispose`, for `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

function requireOwned(method: string, value: unknown): void {
  if (typeof value === "object" && value !== null && typeof (value as Partial<Owned>).dispose === "function")
    return;
  throw new ArgumentError(`${method}: ${describe(value)} has no dispose(); a scope owns tensors`);
}

/**
 * What `body` returns. If it throws, what it has put into `made` is disposed of; otherwise that belongs to the open scope from
 * the beginning, without a scope between.
 */
export function orDispose<T>(body: (made: Owned[]) => T): T {
  const made: Owned[] = [];
  try {
    return body(made);
  } catch (error) {
    for (const each of made) each.dispose();
    throw error;
  }
}

/** The innermost open scope, if any, comes to own `value`. */
export function adopt(value: Owned): void {
  const scope = open.at(-1);
  if (scope) take(scope, value);
}

/** `value` comes to live as long as `sibling`: whoever owns that owns it too. */
export function adoptBeside(value: Owned, sibling: Owned): void {
  disown(value);
  sibling[OWNER]?.own(value);
}

/** Whoever owns `value` no longer does: it was disposed of by hand. */
export function disown(value: Owned): void {
  value[OWNER]?.release(value);
}
