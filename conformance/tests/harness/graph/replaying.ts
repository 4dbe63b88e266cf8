/** A backend that captures every operation as a graph and replays it, so that all laws also test replaying. */
import type { Backend, CapturedWork, MemoryUse, Support } from "../../../../src/backends/backend.js";
import type { GemmArgs } from "../../../../src/backends/gemm-args.js";
import type { OpArgs, OpName } from "../../../../src/backends/ops.js";
import { UnsupportedError } from "../../../../src/errors.js";
import type { GemmAlgorithm } from "../../../../src/formats/gemm-algorithm.js";
import type { Memory } from "../../../../src/tensor/storage.js";

/** Captures the work of `body`. */
function captured(backend: Backend, body: () => void): CapturedWork {
  if (!backend.capture) throw new Error(`${backend.name} captures nothing`);
  return backend.capture(body);
}

/** Runs each operation on `inner` by capturing and replaying it, except operations that cannot be captured. */
export class ReplayingBackend implements Backend {
  readonly memory: Memory;
  /** The operations that were replayed. */
  readonly replayed = new Set<OpName>();
  /** True during a capture: an operation composed of others is captured as a whole. */
  #capturing = false;

  constructor(readonly inner: Backend) {
    this.memory = inner.memory;
  }

  get name(): string {
    return this.inner.name;
  }

  get description(): string {
    return this.inner.description;
  }

  get threads(): number {
    return this.inner.threads;
  }

  get datapath(): Backend["datapath"] {
    return this.inner.datapath;
  }

  memoryUse(): MemoryUse {
    return this.inner.memoryUse();
  }

  trim(): void {
    this.inner.trim();
  }

  supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    return this.inner.supports(op, args);
  }

  run<K extends OpName>(op: K, args: OpArgs[K]): void {
    if (this.#capturing) {
      this.inner.run(op, args);
      return;
    }
    let work: CapturedWork;
    this.#capturing = true;
    try {
      work = captured(this.inner, () => this.inner.run(op, args));
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
      this.inner.run(op, args);
      return;
    } finally {
      this.#capturing = false;
    }
    this.replayed.add(op);
    work.replay();
    work.dispose();
  }

  algorithmFor(args: GemmArgs): GemmAlgorithm | undefined {
    return this.inner.algorithmFor?.(args);
  }

  dispose(): Promise<void> {
    return this.inner.dispose();
  }
}
