/**
 * The backend of one rank of a loopback group: it wraps another backend and runs operations in the order of the rank's stream.
 */
import { type Backend, type MemoryUse, type Support, splitsOn } from "../../backends/backend.js";
import type { GemmArgs } from "../../backends/ops/gemm.js";
import type { OpArgs, OpName } from "../../backends/ops.js";
import { registerRun, runChecked, runOn } from "../../backends/run.js";
import type { GemmAlgorithm } from "../../formats/gemm-algorithm.js";
import { checkedMemory, memoryOf, registerMemory } from "../../tensor/memory.js";
import type { HostCopy, Memory } from "../../tensor/storage.js";
import { retain } from "./retain.js";
import type { Rank } from "./world.js";

/** Runs operations on `inner`, in the order of the rank's stream. */
export class StreamBackend implements Backend {
  readonly #inner: Backend;
  readonly #rank: Rank;

  constructor(inner: Backend, rank: Rank) {
    this.#inner = inner;
    this.#rank = rank;
    registerMemory(this, new StreamMemory(memoryOf(inner), rank));
    registerRun(this, (op, args) => this.#run(op, args));
  }

  get memory(): Memory {
    return checkedMemory(this);
  }

  get name(): string {
    return this.#inner.name;
  }

  get description(): string {
    return `${this.#inner.description}, rank ${this.#rank.number}`;
  }

  get threads(): number {
    return this.#inner.threads;
  }

  get fewerThreads(): string | undefined {
    return this.#inner.fewerThreads;
  }

  get datapath(): Backend["datapath"] {
    return this.#inner.datapath;
  }

  memoryUse(): MemoryUse {
    return this.#inner.memoryUse();
  }

  trim(): void {
    this.#inner.trim();
  }

  supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    return this.#inner.supports(op, args);
  }

  run<K extends OpName>(op: K, args: OpArgs[K]): void {
    runChecked(this, op, args);
  }

  #run<K extends OpName>(op: K, args: OpArgs[K]): void {
    this.#rank.requireNoFailure(op);
    if (this.#rank.stream.waits) {
      const retention = retain(args);
      this.#rank.stream.push({
        work: { run: () => runOn(this.#inner, op, retention.args), release: () => retention.release() },
      });
    } else runOn(this.#inner, op, args);
  }

  algorithmFor(args: GemmArgs): GemmAlgorithm | undefined {
    return this.#inner.algorithmFor?.(args);
  }

  splitKFor(args: GemmArgs): number {
    return splitsOn(this.#inner, args);
  }

  dispose(): Promise<void> {
    this.#rank.stream.drop();
    return this.#inner.dispose();
  }
}

const NONE = (): void => undefined;

class StreamMemory implements Memory {
  constructor(
    readonly inner: Memory,
    readonly rank: Rank,
  ) {}

  get closed(): boolean {
    return this.inner.closed === true;
  }

  allocate(bytes: number): number {
    return this.inner.allocate(bytes);
  }

  free(address: number): void {
    const free = (): void => this.inner.free(address);
    // also deferred while an operation runs: an enqueued copy has only the address of the memory, which must stay allocated
    if (this.rank.stream.queued) this.rank.stream.push({ work: { run: NONE, release: free } });
    else free();
  }

  write(address: number, bytes: Uint8Array): void {
    this.rank.requireNoFailure("write");
    const { waits } = this.rank.stream;
    const copy = waits ? bytes.slice() : bytes;
    this.#inOrder(() => this.inner.write(address, copy));
  }

  copy(to: number, from: number, bytes: number): void {
    this.rank.requireNoFailure("copy");
    this.#inOrder(() => this.inner.copy(to, from, bytes));
  }

  read(address: number, bytes: number): Promise<Uint8Array> {
    return this.rank.whenReached("read", () => this.inner.readSync(address, bytes));
  }

  readSync(address: number, bytes: number): Uint8Array {
    this.rank.requireNoFailure("read");
    this.rank.requireDone();
    return this.inner.readSync(address, bytes);
  }

  copyToHost(address: number, bytes: number): HostCopy {
    this.rank.requireNoFailure("copyToHost");
    let copy: Uint8Array | undefined;
    this.#inOrder(() => {
      copy = this.inner.readSync(address, bytes);
    });
    return {
      restore: (to) => this.#inOrder(() => this.inner.write(to, copy as Uint8Array)),
      free: () => undefined,
    };
  }

  #inOrder(run: () => void): void {
    if (this.rank.stream.waits) this.rank.stream.push({ work: { run, release: NONE } });
    else run();
  }
}
