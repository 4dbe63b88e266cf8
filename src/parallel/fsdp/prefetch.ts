/** Prefetches sharded parameters: gathers the parameters of the next operation while an operation runs. */
import { currentRegion } from "../../autocast.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { DistributedError } from "../../errors.js";
import { gradEnabled } from "../../tape/grad-mode.js";
import type { PendingGather, StartGather } from "../../tape/sharding.js";
import { currentPass, type Operation, type UseHooks } from "../../tape/uses.js";
import { gatherInBuckets } from "./bucketed-gather.js";
import { type ExpectedRun, RunOrder } from "./run-order.js";

/** The gathers that were prefetched for a run that has not begun. */
interface PrefetchedRun extends ExpectedRun {
  /**
   * For a forward run: the pass and the autocast region that were current at the prefetch. All ranks discard the gathers when the
   * pass or the region ends.
   */
  readonly pass: object | undefined;
  readonly region: object | undefined;
  readonly pending: PendingGather[];
}

/** An operation that is running. */
interface ActiveRun {
  readonly key: string;
  readonly operation: Operation;
  /** Whether a backward pass is expected to begin next, and to begin with the backward function of this operation. */
  readonly isLastForward: boolean;
  /** The number of the operation's leaves for which `beforeUse` was called and `afterUse` was not. */
  openLeaves: number;
  /** The gathers for this run, except those that `takePrefetched` has returned. */
  readonly pending: PendingGather[];
  /** The gathers that the operation has registered for its next run. */
  readonly starts: StartGather[];
}

/**
 * All-gathers parameters one operation ahead. Before an operation runs, its parameters are gathered unless they were prefetched
 * during the previous operation; then the parameters of the next operation are prefetched. After the last forward operation, the
 * next operation is the first of the backward pass. At most the parameters of two operations are resident.
 *
 * What an operation gathers, and which operation comes next, is predicted from earlier runs. A wrong prediction costs time and
 * changes no result. All ranks run the same operations, so all of them predict the same and gather in the same order.
 */
export class Prefetch {
  readonly #group: ProcessGroup;
  readonly #order = new RunOrder();
  /** The gathers that a function registered in its last run, by its key. */
  readonly #starts = new Map<string, readonly StartGather[]>();
  /** The gathers that a forward run registered for its backward run. */
  readonly #backwardStarts = new WeakMap<Operation, StartGather[]>();
  /** The running operations. The last one is the innermost. */
  readonly #active: ActiveRun[] = [];
  #prefetched: PrefetchedRun | undefined;

  constructor(group: ProcessGroup) {
    this.#group = group;
  }

  /** Registers a sharded parameter. */
  addLeaf(leaf: UseHooks): void {
    this.#order.addLeaf(leaf);
  }

  /** Called for each leaf of an operation before the operation runs. */
  beforeUse(operation: Operation): void {
    const innermost = this.#active.at(-1);
    if (innermost?.operation === operation) {
      innermost.openLeaves++;
      return;
    }
    const key = this.#order.operationKey(operation);
    const isOutermost = innermost === undefined;
    const pendingGathers = this.#takePending(key, operation);
    this.#order.record(key, operation);
    const isLastForward = isOutermost && gradEnabled() && this.#order.isLastForward(operation);
    if (pendingGathers.length === 0)
      pendingGathers.push(...this.#gather(key, this.#gatherStarts({ key, forward: operation.forward })));
    const run: ActiveRun = {
      key,
      operation,
      isLastForward,
      openLeaves: 1,
      pending: pendingGathers,
      starts: [],
    };
    this.#active.push(run);
    const next = isOutermost ? this.#nextRun(run) : undefined;
    if (next) this.#prefetch(next, this.#gatherStarts(next));
  }

  /** Called for each leaf for which `beforeUse` was called, after the operation has run or if `beforeUse` of a leaf threw. */
  afterUse(operation: Operation): void {
    const run = this.#active.at(-1);
    if (run?.operation !== operation || --run.openLeaves > 0) return;
    this.#active.pop();
    this.#starts.set(run.key, run.starts);
    for (const gather of run.pending.splice(0)) gather.dispose();
  }

  /** Registers a gather of the running operation. See `Sharding.registerGather`. */
  registerGather(start: StartGather, moment: "operation" | "backward"): void {
    const run = this.#active.at(-1);
    if (!run) return;
    if (moment === "operation") {
      if (!run.starts.includes(start)) run.starts.push(start);
      return;
    }
    const { operation } = run;
    this.#backwardStarts.set(operation, [...(this.#backwardStarts.get(operation) ?? []), start]);
    if (run.isLastForward) this.#prefetch(this.#order.backwardOf(operation), [start]);
  }

  /** Takes a prefetched gather of the running operation. See `Sharding.takePrefetched`. */
  takePrefetched<G extends PendingGather>(matches: (gather: PendingGather) => gather is G): G | undefined {
    const pendingGathers = this.#active.at(-1)?.pending;
    const match = pendingGathers?.find(matches);
    if (pendingGathers && match) pendingGathers.splice(pendingGathers.indexOf(match), 1);
    return match;
  }

  /** Frees the gathers that were prefetched for a run that has not begun. */
  discard(): void {
    const prefetched = this.#prefetched;
    this.#prefetched = undefined;
    for (const gather of prefetched?.pending ?? []) gather.dispose();
  }

  /** Returns the gathers that were prefetched for this run. Gathers for another run are freed. */
  #takePending(key: string, { forward }: Operation): PendingGather[] {
    const prefetched = this.#prefetched;
    const isForThisRun =
      prefetched?.key === key &&
      prefetched.forward === forward &&
      (forward !== undefined || (prefetched.pass === currentPass() && prefetched.region === currentRegion()));
    if (!isForThisRun) this.discard();
    this.#prefetched = undefined;
    return isForThisRun ? prefetched.pending : [];
  }

  #gatherStarts({ key, forward }: ExpectedRun): readonly StartGather[] {
    const starts = this.#starts.get(key) ?? [];
    return forward ? [...(this.#backwardStarts.get(forward) ?? []), ...starts] : starts;
  }

  /** Returns the run that is expected after this one. */
  #nextRun({ operation, isLastForward }: ActiveRun): ExpectedRun | undefined {
    const next = operation.forward?.nextInBackward;
    if (next) return this.#order.backwardOf(next);
    return isLastForward ? this.#order.backwardOf(operation) : this.#order.nextForward();
  }

  #prefetch(next: ExpectedRun, starts: readonly StartGather[]): void {
    let pendingGathers: PendingGather[];
    try {
      pendingGathers = this.#gather(next.key, starts);
    } catch (error) {
      if (error instanceof DistributedError) throw error;
      // the prediction may be wrong; if it is right, the next operation throws the same error on all ranks
      return;
    }
    if (pendingGathers.length === 0) return;
    this.#prefetched ??= { ...next, pass: currentPass(), region: currentRegion(), pending: [] };
    this.#prefetched.pending.push(...pendingGathers);
  }

  #gather(key: string, starts: readonly StartGather[]): PendingGather[] {
    return gatherInBuckets(this.#group, key, starts);
  }
}
