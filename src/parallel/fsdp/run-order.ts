/** The order in which operations with sharded parameters run. It is recorded in each pass and predicts the next one. */
import { currentPass, type Operation, USE_HOOKS, type UseHooks } from "../../tape/uses.js";

/** A predicted run: a forward function, or the backward function of the run `forward`. */
export interface ExpectedRun {
  /** The key of the function, as `RunOrder.operationKey` returns it. */
  readonly key: string;
  readonly forward: Operation | undefined;
}

/** Records which function ran after which function. All ranks run the same operations, so all ranks record the same order. */
export class RunOrder {
  readonly #leafNumbers = new Map<UseHooks, number>();
  /** The keys of functions, by the keys of the two functions that ran before them. */
  readonly #successors = new Map<string, string>();
  /** The backward functions that began a backward pass directly after their own forward run. */
  readonly #firstBackwards = new Set<string>();
  /** The pass of the last recorded run. A forward phase outside of backward passes counts as a pass. */
  #pass: object | undefined;
  #firstKey = "";
  #lastKeys: readonly [before: string, last: string] = ["", ""];

  /** Registers a sharded parameter. */
  addLeaf(leaf: UseHooks): void {
    this.#leafNumbers.set(leaf, this.#leafNumbers.size);
  }

  /**
   * Returns the key of a function: its kind and its leaves. The kinds are forward, backward, and recomputation (forward within a
   * backward pass). All runs of a function have the same key.
   */
  operationKey(
    { leaves, forward }: Operation,
    kind = forward ? "backward" : currentPass() ? "again" : "forward",
  ): string {
    const numbers = leaves.flatMap(({ [USE_HOOKS]: hooks }) => (hooks && this.#leafNumbers.get(hooks)) ?? []);
    return `${kind} ${numbers}`;
  }

  /** Records that a function runs. */
  record(key: string, { forward }: Operation): void {
    const pass = currentPass();
    if (pass !== this.#pass) {
      this.#pass = pass;
      this.#lastKeys = ["", ""];
    }
    if (forward?.isLastForward) this.#firstBackwards.add(key);
    else if (forward) this.#firstBackwards.delete(key);
    const [previousKey, lastKey] = this.#lastKeys;
    if (lastKey === "") this.#firstKey = key;
    else this.#successors.set(`${previousKey} > ${lastKey}`, key);
    this.#lastKeys = [lastKey, key];
  }

  /** Returns the backward run of a forward run. */
  backwardOf(forward: Operation): ExpectedRun {
    return { key: this.operationKey(forward, "backward"), forward };
  }

  /**
   * Returns the forward run that is expected after the recorded run. Undefined at the end of a pass: the first function of a pass
   * is never expected.
   */
  nextForward(): ExpectedRun | undefined {
    const key = this.#successors.get(this.#lastKeys.join(" > "));
    const isForward = key !== undefined && key !== this.#firstKey && !key.startsWith("backward");
    return isForward ? { key, forward: undefined } : undefined;
  }

  /** Whether a forward run is expected to be the last run before a backward pass that begins with its backward function. */
  isLastForward(operation: Operation): boolean {
    return (
      operation.sequence > 0 &&
      this.#firstBackwards.has(this.backwardOf(operation).key) &&
      this.nextForward() === undefined
    );
  }
}
