/** The reference backend in WebAssembly. It defines the result of every operation and runs on any CPU. */
import { platform } from "#platform";
import { ArgumentError, BackendError, DisposedError, LockstepError } from "../../errors.js";
import { describe, integer } from "../../options.js";
import { checkedMemory, registerMemory } from "../../tensor/memory.js";
import { type Memory, withTemporary } from "../../tensor/storage.js";
import {
  type Backend,
  type CapturedWork,
  datapathName,
  EXACT,
  type MemoryUse,
  type Support,
} from "../backend.js";
import { requireReplayable } from "../captured.js";
import type { OpArgs, OpName } from "../ops.js";
import { registerRun, runChecked } from "../run.js";
import { writesNothing } from "../writes.js";
import { Heap } from "./heap.js";
import { type Instance, openInstance } from "./instance.js";
import type { LoweringContext } from "./lowering.js";
import { LOWERINGS } from "./lowerings.gen.js";
import type { WasmOptions } from "./options.js";
import { Pool } from "./pool.js";

const MAX_THREADS = 64;

/** Checks the option `threads`. */
export const threadCount = integer(1, MAX_THREADS);

/**
 * Opens the reference. Throws `ArgumentError` for an invalid number of threads or an unknown datapath, `BackendError` if the
 * requested threads cannot be started.
 */
export async function openWasm(options: WasmOptions = {}): Promise<Backend> {
  return openWasmOver(await openInstance(), options);
}

/** Opens the reference on an instance that the caller provides. Throws as `openWasm` does. */
export async function openWasmOver(instance: Instance, options: WasmOptions): Promise<Backend> {
  const { threads = Math.min(platform.parallelism, MAX_THREADS), datapath = "hopper" } = options;
  threadCount("openBackend", "threads", threads);
  datapathName("openBackend", "datapath", datapath);
  const heap = new Heap(instance);
  const { pool, fewer } = await openPool(instance, heap, threads, options.threads === undefined);
  return new WasmBackend(heap, pool, { datapath, fewerThreads: fewer });
}

/**
 * Opens a pool of `threads` threads. If the workers cannot be started and `allowsFewer` is true, it opens a pool of one thread
 * and returns the reason as `fewer`.
 */
async function openPool(
  instance: Instance,
  heap: Heap,
  threads: number,
  allowsFewer: boolean,
): Promise<{ readonly pool: Pool; readonly fewer: string | undefined }> {
  try {
    const fewer = allowsFewer ? platform.oneThread : undefined;
    return { pool: await Pool.open(instance, heap, threads), fewer };
  } catch (error) {
    if (!allowsFewer || !(error instanceof BackendError)) throw error;
    console.warn(`lockstep: the reference computes on one thread. ${error.message}`);
    return { pool: await Pool.open(instance, heap, 1), fewer: error.message };
  }
}

/** The settings of the backend. */
interface Settings {
  readonly datapath: Backend["datapath"];
  readonly fewerThreads: string | undefined;
}

class WasmBackend implements Backend {
  readonly name = "wasm";
  readonly description: string;
  readonly fewerThreads: string | undefined;
  readonly datapath: Backend["datapath"];
  readonly #heap: Heap;
  /** The lowering context. It is cleared on disposal, together with the memory that it refers to. */
  #context: LoweringContext | undefined;

  constructor(heap: Heap, pool: Pool, { datapath, fewerThreads }: Settings) {
    this.#heap = heap;
    registerMemory(this, heap);
    registerRun(this, (op, args) => this.#run(op, args));
    this.datapath = datapath;
    this.fewerThreads = fewerThreads;
    this.description = `WebAssembly reference, ${pool.size} thread${pool.size > 1 ? "s" : ""}, SIMD128`;
    this.#context = {
      pool,
      heap,
      withTemporary: (bytes, body) => withTemporary(heap, bytes, body),
    };
  }

  get memory(): Memory {
    return checkedMemory(this);
  }

  get threads(): number {
    return this.#context?.pool.size ?? 1;
  }

  memoryUse(): MemoryUse {
    return this.#heap.use();
  }

  /** Does nothing, because WebAssembly memory cannot shrink. */
  trim(): void {
    return;
  }

  supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    try {
      return LOWERINGS[op].supports?.(args) ?? EXACT;
    } catch (cause) {
      if (cause instanceof LockstepError) throw cause;
      throw new ArgumentError(`supports: these are not the arguments of an operation ${describe(op)}`, {
        cause,
      });
    }
  }

  run<K extends OpName>(op: K, args: OpArgs[K]): void {
    runChecked(this, op, args);
  }

  #run<K extends OpName>(op: K, args: OpArgs[K]): void {
    if (!this.#context) throw new DisposedError("the wasm backend");
    this.#context.pool.check();
    if (writesNothing(op, args)) return;
    const { recording } = this.#heap;
    if (!recording) {
      LOWERINGS[op].run(this.#context, args);
      return;
    }
    requireReplayable(op, args);
    recording.addOn(args, (copiedArgs) => this.#run(op, copiedArgs));
  }

  capture(body: () => void): CapturedWork {
    if (!(#context in this))
      throw new ArgumentError("capture: this inherits from a backend; capture on the backend itself");
    if (!this.#context) throw new DisposedError("the wasm backend");
    return this.#heap.record(body);
  }

  async dispose(): Promise<void> {
    const pool = this.#context?.pool;
    this.#context = undefined;
    this.#heap.close();
    await pool?.close();
  }
}
