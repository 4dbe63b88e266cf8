/** A backend that forwards every call to another one: the base class of backends that observe or change calls. */
import {
  type Backend,
  type MemoryUse,
  requireBackend,
  type Support,
  splitsOn,
} from "../../src/backends/backend.js";
import type { GemmArgs } from "../../src/backends/ops/gemm.js";
import type { OpArgs, OpName } from "../../src/backends/ops.js";
import type { GemmAlgorithm } from "../../src/formats/gemm-algorithm.js";
import type { Memory } from "../../src/tensor/storage.js";

/**
 * Forwards every call to `inner`. Subclasses override some of the methods.
 *
 * @throws `ArgumentError` unless `inner` is a backend. @throws `DisposedError` for a disposed backend.
 */
export abstract class PassingBackend implements Backend {
  /** The memory of its tensors: `inner`'s by default. */
  readonly memory: Memory;

  constructor(
    /** The backend that computes. */
    readonly inner: Backend,
    memory?: (inner: Backend) => Memory,
  ) {
    requireBackend(new.target.name, inner, "inner");
    this.memory = memory ? memory(inner) : inner.memory;
  }

  /** The name of `inner`. */
  get name(): Backend["name"] {
    return this.inner.name;
  }

  /** The description of `inner`. */
  get description(): string {
    return this.inner.description;
  }

  /** The number of threads of `inner`. */
  get threads(): number {
    return this.inner.threads;
  }

  /** The datapath of `inner`. */
  get datapath(): Backend["datapath"] {
    return this.inner.datapath;
  }

  /** Returns the memory use of `inner`. */
  memoryUse(): MemoryUse {
    return this.inner.memoryUse();
  }

  /** Trims `inner`. */
  trim(): void {
    this.inner.trim();
  }

  /** Returns whether `inner` supports the operation. */
  supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    return this.inner.supports(op, args);
  }

  /** Runs the operation on `inner`. */
  run<K extends OpName>(op: K, args: OpArgs[K]): void {
    this.inner.run(op, args);
  }

  /** Returns the algorithm that `inner` would use. */
  algorithmFor(args: GemmArgs): GemmAlgorithm | undefined {
    return this.inner.algorithmFor?.(args);
  }

  /** Returns the number of splits of K that `inner` would use. */
  splitKFor(args: GemmArgs): number {
    return splitsOn(this.inner, args);
  }

  /** Calls `body` through `onSideStream` of `inner`. */
  onSideStream<R>(body: () => R): R {
    return this.inner.onSideStream ? this.inner.onSideStream(body) : body();
  }

  /** Disposes of `inner`. */
  dispose(): Promise<void> {
    return this.inner.dispose();
  }
}
