/** Brings what operations need of other ranks one operation ahead, beside the one that runs. */
import { currentRegion } from "../../autocast.js";
import { sum } from "../../collectives/arguments.js";
import type { GatherRequest, ProcessGroup } from "../../collectives/group.js";
import { DistributedError } from "../../errors.js";
import type { Bringing, Need } from "../../modules/sharding.js";
import { onSideStream } from "../../ops/side-stream.js";
import type { AmaxReductionGroup } from "../../quantizers/shard.js";
import { gradEnabled } from "../../tape/grad-mode.js";
import { type Operation, runningPass, USES, type Uses } from "../../tape/uses.js";
import { Scope } from "../../tensor/scope.js";
import { byteLength } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { BUCKET_BYTES } from "../data/buckets.js";

/** A function that is expected. */
interface Next {
  readonly key: string;
  /** Of a backward function: which one's. */
  readonly forward: Operation | undefined;
}

/** What was brought for an operation that does not run yet. */
interface Ahead extends Next {
  /** Of a forward function: when it was brought. Ranks forget it alike when either is over. */
  readonly pass: object | undefined;
  readonly region: object | undefined;
  readonly brought: Bringing[];
}

/** An operation that runs. */
interface Running {
  readonly key: string;
  readonly operation: Operation;
  /** Whether its own backward function is expected next. */
  readonly isTurn: boolean;
  /** How many of its leaves it has entered and not left. */
  inside: number;
  /** What was brought for it and is not taken. */
  readonly brought: Bringing[];
  /** What it turned out to need. */
  readonly needs: Need[];
}

/**
 * Learns from each run of an operation what it needs and which operation came next. Before an operation runs, what it needs is
 * brought, if that was not done; then what the next one will need: behind the last forward function that is its own backward
 * function, with which the backward pass begins. So at most what two operations need is here.
 * All ranks run the same operations, so they exchange in the same order, whatever they expected.
 */
export class Prefetch {
  readonly #group: ProcessGroup;
  readonly #numbers = new Map<Uses, number>();
  /** What a function needed when it ran last. */
  readonly #needs = new Map<string, readonly Need[]>();
  /** What the backward function of an operation will need of this run. */
  readonly #backward = new WeakMap<Operation, Need[]>();
  /** Which function came after two others. */
  readonly #after = new Map<string, string>();
  readonly #running: Running[] = [];
  #ahead: Ahead | undefined;
  #pass: object | undefined;
  /** The first function of this pass, and the last two. */
  #first = "";
  #last: readonly [before: string, last: string] = ["", ""];
  /** The backward functions with which a pass began when they ran last, directly behind their forward functions. */
  readonly #turns = new Set<string>();

  constructor(group: ProcessGroup) {
    this.#group = group;
  }

  /** Called for each leaf of an operation, before it runs. */
  enter(operation: Operation): void {
    const current = this.#running.at(-1);
    if (current?.operation === operation) {
      current.inside++;
      return;
    }
    const key = this.#keyOf(operation);
    const isOutermost = current === undefined;
    const brought = this.#arrived(key, operation);
    this.#learn(key, operation);
    const isTurn = isOutermost && gradEnabled() && this.#turnsAt(operation);
    const running: Running = { key, operation, isTurn, inside: 1, brought, needs: [] };
    if (brought.length === 0) this.#bring(key, this.#needsOf({ key, forward: operation.forward }), brought);
    this.#running.push(running);
    const next = isOutermost ? this.#next(running) : undefined;
    if (next) this.#bringAhead(next, this.#needsOf(next));
  }

  /** Called for each leaf that was entered, after the operation has run, or when entering one has failed. */
  leave(operation: Operation): void {
    const running = this.#running.at(-1);
    if (running?.operation !== operation || --running.inside > 0) return;
    this.#running.pop();
    this.#needs.set(running.key, running.needs);
    for (const each of running.brought.splice(0)) each.dispose();
  }

  /** The running operation needs this now, or its backward function will. */
  needs(need: Need, where: "here" | "backward"): void {
    const running = this.#running.at(-1);
    if (!running) return;
    if (where === "here") {
      if (!running.needs.includes(need)) running.needs.push(need);
      return;
    }
    const { operation } = running;
    this.#backward.set(operation, [...(this.#backward.get(operation) ?? []), need]);
    if (running.isTurn) this.#bringAhead(this.#backwardOf(operation), [need]);
  }

  /** Takes what was brought for the running operation. */
  take<B extends Bringing>(isIt: (brought: Bringing) => brought is B): B | undefined {
    const brought = this.#running.at(-1)?.brought;
    const found = brought?.find(isIt);
    if (brought && found) brought.splice(brought.indexOf(found), 1);
    return found;
  }

  /** Frees what was brought for an operation that does not run yet. */
  drop(): void {
    const ahead = this.#ahead;
    this.#ahead = undefined;
    for (const each of ahead?.brought ?? []) each.dispose();
  }

  /** Registers a leaf. */
  add(uses: Uses): void {
    this.#numbers.set(uses, this.#numbers.size);
  }

  /** The same for all runs of the function of an operation: forward, again forward in a backward pass, or backward. */
  #keyOf(
    { leaves, forward }: Operation,
    kind = forward ? "backward" : runningPass() ? "again" : "forward",
  ): string {
    const numbers = leaves.flatMap(({ [USES]: uses }) => (uses && this.#numbers.get(uses)) ?? []);
    return `${kind} ${numbers}`;
  }

  /** What was brought for this operation; what was brought for another is freed. */
  #arrived(key: string, { forward }: Operation): Bringing[] {
    const ahead = this.#ahead;
    const isIt =
      ahead?.key === key &&
      ahead.forward === forward &&
      (forward !== undefined || (ahead.pass === runningPass() && ahead.region === currentRegion()));
    if (!isIt) this.drop();
    this.#ahead = undefined;
    return isIt ? ahead.brought : [];
  }

  #learn(key: string, { forward }: Operation): void {
    const pass = runningPass();
    if (pass !== this.#pass) {
      this.#pass = pass;
      this.#last = ["", ""];
    }
    if (forward?.isTurn) this.#turns.add(key);
    else if (forward) this.#turns.delete(key);
    const [before, last] = this.#last;
    if (last === "") this.#first = key;
    else this.#after.set(`${before} > ${last}`, key);
    this.#last = [last, key];
  }

  /** Whether a backward pass is expected to begin behind this function, with its backward function. */
  #turnsAt(operation: Operation): boolean {
    return operation.number > 0 && this.#turns.has(this.#backwardOf(operation).key) && !this.#expected();
  }

  #needsOf({ key, forward }: Next): readonly Need[] {
    const known = this.#needs.get(key) ?? [];
    return forward ? [...(this.#backward.get(forward) ?? []), ...known] : known;
  }

  /** The function that is expected behind this one. */
  #next({ operation, isTurn }: Running): Next | undefined {
    const following = operation.forward?.following;
    if (following) return this.#backwardOf(following);
    return isTurn ? this.#backwardOf(operation) : this.#expected();
  }

  #backwardOf(forward: Operation): Next {
    return { key: this.#keyOf(forward, "backward"), forward };
  }

  /** Brings some of what the next function needs. */
  #bringAhead(next: Next, needs: readonly Need[]): void {
    const brought: Bringing[] = [];
    try {
      this.#bring(next.key, needs, brought);
    } catch (error) {
      if (error instanceof DistributedError) throw error;
      // the next operation may be another one; if it is this one, it will fail alike
      return;
    }
    if (brought.length === 0) return;
    this.#ahead ??= { ...next, pass: runningPass(), region: currentRegion(), brought: [] };
    this.#ahead.brought.push(...brought);
  }

  /** The forward function that came next last time; not the first one, with which another pass begins. */
  #expected(): Next | undefined {
    const key = this.#after.get(this.#last.join(" > "));
    const isIt = key !== undefined && key !== this.#first && !key.startsWith("backward");
    return isIt ? { key, forward: undefined } : undefined;
  }

  /**
   * Brings all of it beside the operation that runs: in one exchange, and one before of amaxes, but what is large in several, so
   * that an operation can begin with what it needs first.
   */
  #bring(key: string, needs: readonly Need[], brought: Bringing[]): void {
    if (needs.length === 0) return;
    const { backend } = this.#group;
    const exchange = (left: Bringing[]) =>
      this.#group.saying(`parameters, ${key}`, () => this.#exchange(left));
    try {
      onSideStream(backend, () => {
        using _ = new Scope();
        for (const need of needs) {
          const begun = need();
          if (begun) brought.push(begun);
        }
        shareAmaxes(brought);
      });
      const left = [...brought];
      while (left.length > 0) onSideStream(backend, () => exchange(left));
    } catch (error) {
      for (const each of brought.splice(0)) each.dispose();
      throw error;
    }
  }

  /** Gathers the first of `left`, as many as have `BUCKET_BYTES` together, and removes them from it. */
  #exchange(left: Bringing[]): void {
    using _ = new Scope();
    const taken: { readonly of: Bringing; readonly requests: readonly GatherRequest[] }[] = [];
    for (let bytes = 0; left.length > 0 && bytes < BUCKET_BYTES; ) {
      const of = left.shift() as Bringing;
      const requests = of.requests();
      taken.push({ of, requests });
      for (const each of requests) bytes += this.#gatheredBytes(each);
    }
    const gathered: Tensor[] = this.#group.allGatherCoalesced(taken.flatMap(({ requests }) => requests));
    for (const { of, requests } of taken) of.arrive(gathered.splice(0, requests.length));
  }

  /** The bytes of what all ranks send, which are equal on all of them. */
  #gatheredBytes({ x: { dtype, shape }, rows }: GatherRequest): number {
    const all = rows ? sum(rows) : (shape[0] ?? 1) * this.#group.size;
    return byteLength(dtype, [all, ...shape.slice(1)]);
  }
}

/** Makes the amaxes of ranks those of the whole, in one exchange for each group. */
function shareAmaxes(brought: readonly Bringing[]): void {
  const byGroup = new Map<AmaxReductionGroup, Tensor<"f32">[]>();
  for (const { amaxes } of brought)
    if (amaxes) byGroup.set(amaxes.group, [...(byGroup.get(amaxes.group) ?? []), ...amaxes.own]);
  for (const [group, own] of byGroup) group.reduceMax(own);
}
