/** Deterministic lifetimes: a scope disposes of the tensors that were created in it, except those that were kept. */

import { guardReceivers, isObject } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { describe, fieldOf } from "../options.js";

/** The key under which an object stores the scope that owns it. A field is cheaper than a map from objects to scopes. */
export const OWNER = Symbol("owner");

/** An object that a scope can own. */
export interface Owned {
  /** @internal The scope that owns it. */
  [OWNER]?: Scope | undefined;
  /** Ends its lifetime. A second call must do nothing. */
  dispose(): void;
  /** The objects that are owned instead of this one, if it consists of several. */
  readonly members?: readonly Owned[];
}

/** Some JavaScript engines lack Symbol.dispose, the symbol that `using` looks up. */
if (!Symbol.dispose) Object.defineProperty(Symbol, "dispose", { value: Symbol("Symbol.dispose") });

const open: Scope[] = [];

/** As `own`, for a value that is known to have a method `dispose`. */
let takeValue: (scope: Scope, value: Owned) => void;

/**
 * Owns every tensor that is created while it is the innermost open scope, and disposes of them at its end:
 *
 *     using scope = new Scope();
 *     return scope.keep(dequantize(quantizer.quantize(x)));
 *
 * Use a scope in synchronous code only. A scope that is open across an `await` also owns the tensors that other code creates in
 * the meantime.
 */
export class Scope {
  static {
    takeValue = (scope, value) => scope.#take(value);
    guardReceivers(this, (x) => isObject(x) && #owned in x);
  }

  readonly #owned = new Set<Owned>();
  readonly #outer = open.at(-1);

  constructor() {
    open.push(this);
  }

  /**
   * Passes the ownership of `value` to the enclosing scope or, if there is none, to the caller. Returns `value`.
   *
   * @throws `ArgumentError` for an object without a method `dispose`.
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

  /** @internal Passes everything that the scope owns to the enclosing scope or, if there is none, to the caller. */
  keepAll(): void {
    for (const member of this.#owned) {
      member[OWNER] = undefined;
      if (this.#outer) this.#outer.#take(member);
    }
    this.#owned.clear();
  }

  /** Makes this scope the owner of `value`. Throws `ArgumentError` for an object without a method `dispose`. */
  own(value: Owned): void {
    requireOwned("own", value);
    setOwner("own", value, this);
    this.#owned.add(value);
  }

  #take(value: Owned): void {
    this.#owned.add(value);
    value[OWNER] = this;
  }

  /**
   * Ends the ownership of `value` by this scope; the caller must dispose of it. Throws `ArgumentError` for an object without a
   * method `dispose`.
   */
  release(value: Owned): void {
    requireOwned("release", value);
    setOwner("release", value, undefined);
    this.#owned.delete(value);
  }

  /**
   * @internal Runs `body` with this scope as the innermost one. It may be called several times. Between the calls the scope does
   * not become the owner of new tensors, and keeps the tensors that it owns.
   */
  within<R>(body: () => R): R {
    this.close();
    open.push(this);
    try {
      return body();
    } finally {
      this.close();
    }
  }

  /**
   * @internal Closes the scope without disposing of anything. It does not become the owner of new tensors; the tensors that it
   * owns live until `dispose()`. A second call does nothing.
   */
  close(): void {
    if (open.at(-1) === this) open.pop();
    else if (open.includes(this)) open.splice(open.indexOf(this), 1);
  }

  /** Closes the scope and disposes of everything that it still owns. A second call does nothing. */
  dispose(): void {
    this.close();
    if (this.#owned.size === 0) return;
    for (const value of this.#owned) value.dispose();
    this.#owned.clear();
  }

  /** Calls `dispose` at the end of a `using` declaration's block. */
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/**
 * Sets the owner of a caller's object. Throws `ArgumentError` for an object that cannot have an owner, such as a proxy of a
 * tensor.
 */
function setOwner(method: string, value: Owned, scope: Scope | undefined): void {
  try {
    value[OWNER] = scope;
  } catch (cause) {
    throw new ArgumentError(
      `${method}: value is ${describe(value)}, a proxy or an imitation of one; give the object itself`,
      { cause },
    );
  }
}

function requireOwned(method: string, value: unknown): void {
  if (
    typeof value === "object" &&
    value !== null &&
    typeof fieldOf(method, "value", value, "dispose") === "function"
  )
    return;
  throw new ArgumentError(
    `${method}: value is ${describe(value)}, which has no dispose(); a scope owns tensors`,
  );
}

/**
 * Returns the result of `body`. If `body` throws, disposes of everything that it has added to `allocated`. Otherwise these
 * objects belong to the scope that was open at the call; no other scope is created.
 */
export function orDispose<T>(body: (allocated: Owned[]) => T): T {
  const allocated: Owned[] = [];
  try {
    return body(allocated);
  } catch (error) {
    for (const each of allocated) each.dispose();
    throw error;
  }
}

/** Makes the innermost open scope, if there is one, the owner of `value`. */
export function adopt(value: Owned): void {
  const scope = open.at(-1);
  if (scope) takeValue(scope, value);
}

/** Makes the owner of `sibling` the owner of `value`, so that both live equally long. */
export function adoptBeside(value: Owned, sibling: Owned): void {
  disown(value);
  sibling[OWNER]?.own(value);
}

/** Ends the ownership of `value` by any scope. Its caller manages its lifetime. */
export function disown(value: Owned): void {
  value[OWNER]?.release(value);
}
