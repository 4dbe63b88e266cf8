/** The reference as a backend: the definition of every operation, on any CPU. */
import { platform } from "#platform";
import { ArgumentError, DisposedError } from "../errors.js";
import { type Backend, EXACT, type MemoryUse, requireDatapath, type Support } from "./backend.js";
import type { OpArgs, OpName } from "./ops.js";
import { Heap } from "./wasm/heap.js";
import { type Instance, openInstance } from "./wasm/instance.js";
import type { LoweringContext } from "./wasm/lowering.js";
import { LOWERINGS } from "./wasm/lowerings.js";
import { Pool } from "./wasm/pool.js";
import type { WasmOptions } from "./wasm-options.js";
import { writesNothing } from "./writes.js";

const MOST_THREADS = 64;

/** Opens the reference. Throws `ArgumentError` for a thread count or a datapath that is none. */
export async function openWasm(options: WasmOptions = {}): Promise<Backend> {
  return openWasmOver(await openInstance(), options);
}

/** As `openWasm`, over an instance that the caller has opened. */
export async function openWasmOver(instance: Instance, options: WasmOptions): Promise<Backend> {
  const threads = options.threads ?? Math.min(platform.parallelism, MOST_THREADS);
  if (!Number.isInteger(threads) || threads < 1 || threads > MOST_THREADS) {
    throw new ArgumentError(`threads must be 1 to ${MOST_THREADS}; ${threads} was given`);
  }
  const { datapath = "hopper" } = options;
  requireDatapath(datapath);
  const heap = new Heap(instance);
  return new WasmBackend(instance, heap, await Pool.open(instance, heap, threads), datapath);
}

class WasmBackend implements Backend {
  readonly name = "wasm";
  readonly description: string;
  readonly threads: number;
  readonly memory: Heap;
  readonly #context: LoweringContext;
  readonly #pool: Pool;
  #disposed = false;

  constructor(
    instance: Instance,
    heap: Heap,
    pool: Pool,
    readonly datapath: Backend["datapath"],
  ) {
    this.memory = heap;
    this.threads = pool.size;
    this.description = `WebAssembly reference, ${pool.size} thread${pool.size > 1 ? "s" : ""}, SIMD128`;
    this.#pool = pool;
    this.#context = {
      exports: instance.exports,
      pool,
      heap,
      withTemporary(bytes, body) {
        const address = heap.allocate(bytes);
        try {
          return body(address);
        } finally {
          heap.free(address);
        }
      },
    };
  }

  memoryUse(): MemoryUse {
    return this.memory.use();
  }

  supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    return LOWERINGS[op].supports?.(args) ?? EXACT;
  }

  run<K extends OpName>(op: K, args: OpArgs[K]): void {
    if (this.#disposed) throw new DisposedError("the wasm backend");
    if (writesNothing(op, args)) return;
    LOWERINGS[op].run(this.#context, args);
  }

  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    this.memory.close();
    await this.#pool.close();
  }
}
