/** Whatever is run is captured and replayed: so that what holds of running holds of replaying. */
import type { Backend, CapturedWork, MemoryUse, Support } from "../../../../src/backends/backend.js";
import type { GemmArgs } from "../../../../src/backends/gemm-args.js";
import type { OpArgs, OpName } from "../../../../src/backends/ops.js";
import { UnsupportedError } from "../../../../src/errors.js";
import type { GemmAlgorithm } from "../../../../src/formats/gemm-algorithm.js";
import type { Memory } from "../../../../src/tensor/storage.js";

/** The work of `body`, on a backend that can capture. */
function captured(backend: Backend, body: () => void): CapturedWork {
  if (!backend.capture) throw new Error(`${backend.name} captures nothing`);
  return backend.capture(body);
}

/** Runs each operation on `inner` by a replay, but for those that are refused in a capture. */
export class ReplayingBackend implements Backend {
  readonly memory: Memory;
  /** Operations that were replayed. */
  readonly replayed = new Set<OpName>();
  /** An operation may be composed of others. */
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
