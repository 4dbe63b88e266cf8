/** A backend that passes everything on to another: the base of those that watch or change what is asked of it. */
import { type Backend, type MemoryUse, requireBackend, type Support } from "../../src/backends/backend.js";
import type { GemmArgs } from "../../src/backends/ops/gemm.js";
import type { OpArgs, OpName } from "../../src/backends/ops.js";
import type { GemmAlgorithm } from "../../src/formats/gemm-algorithm.js";
import type { Memory } from "../../src/tensor/storage.js";

/**
 * Passes everything on to `inner`; subclasses override.
 *
 * @throws `ArgumentError` for what is no backend.
 * @throws `DisposedError` for a backend that was disposed of.
 */
export abstract class PassingBackend implements Backend {
  /** The memory of its tensors, by default that of `inner`. */
  readonly memory: Memory;

  constructor(
    /** The backend that computes. */
    readonly inner: Backend,
    memory?: (inner: Backend) => Memory,
  ) {
    requireBackend(new.target.name, inner);
    this.memory = memory ? memory(inner) : inner.memory;
  }

  /** That of `inner`. */
  get name(): Backend["name"] {
    return this.inner.name;
  }

  /** That of `inner`. */
  get description(): string {
    return this.inner.description;
  }

  /** That of `inner`. */
  get threads(): number {
    return this.inner.threads;
  }

  /** That of `inner`. */
  get datapath(): Backend["datapath"] {
    return this.inner.datapath;
  }

  /** That of `inner`. */
  memoryUse(): MemoryUse {
    return this.inner.memoryUse();
  }

  /** Trims `inner`. */
  trim(): void {
    this.inner.trim();
  }

  /** What `inner` says. */
  supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    return this.inner.supports(op, args);
  }

  /** Runs on `inner`. */
  run<K extends OpName>(op: K, args: OpArgs[K]): void {
    this.inner.run(op, args);
  }

  /** What `inner` says. */
  algorithmFor(args: GemmArgs): GemmAlgorithm | undefined {
    return this.inner.algorithmFor?.(args);
  }

  /** Calls `body` as `inner` does. */
  onSideStream<R>(body: () => R): R {
    return this.inner.onSideStream ? this.inner.onSideStream(body) : body();
  }

  /** Disposes of `inner`. */
  dispose(): Promise<void> {
    return this.inner.dispose();
  }
}
