/**
 * A group of two ranks on one backend, so that collectives complete at once. It records where a GPU's main stream would wait for
 * the side stream. It keeps the same records as native/core/side.cc: work on the side stream uses blocks of memory, and the main
 * stream waits for the work when it uses or frees such a block.
 */
import type { Backend } from "../../../../src/backends/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import { interceptRun } from "../../../../src/backends/run.js";
import type {
  CollectiveArgs,
  CollectiveName,
  Communicator,
} from "../../../../src/collectives/communicator.js";
import { ProcessGroup } from "../../../../src/collectives/group.js";
import { memoryOf } from "../../../../src/tensor/memory.js";
import { Tensor } from "../../../../src/tensor/tensor.js";

/** The events in order: `main gemm`, `side allGather`, or `wait for a free`. */
export type Record = string[];

const RANKS = 2;

export interface WatchedGroup {
  readonly group: ProcessGroup;
  readonly record: Record;
  /** The number of live bytes at each product. */
  readonly liveAtProducts: number[];
  dispose(): Promise<void>;
}

export async function watchedGroup(): Promise<WatchedGroup> {
  const backend = await openBackend("wasm", { threads: 1, datapath: "exact" });
  const record: Record = [];
  const liveAtProducts: number[] = [];
  const memory = memoryOf(backend);
  const blocks = new Map<number, number>();
  let works: Set<number>[] = [];
  let isAside = false;

  const blockAt = (address: number): number | undefined => {
    for (const [begin, bytes] of blocks) if (address >= begin && address < begin + bytes) return begin;
    return undefined;
  };
  const use = (block: number | undefined, why: string): void => {
    if (block === undefined) return;
    if (isAside) {
      works.at(-1)?.add(block);
      return;
    }
    const index = works.findLastIndex((work) => work.has(block));
    if (index < 0) return;
    record.push(`wait for ${why}`);
    works = works.slice(index + 1);
  };
  const [allocate, free, copy] = [memory.allocate, memory.free, memory.copy].map((method) =>
    method.bind(memory),
  ) as [typeof memory.allocate, typeof memory.free, typeof memory.copy];
  memory.allocate = (bytes) => {
    const address = allocate(bytes);
    blocks.set(address, bytes);
    if (isAside) use(address, "an allocation");
    return address;
  };
  memory.free = (address) => {
    if (isAside) for (const work of works) work.delete(address);
    else use(address, "a free");
    blocks.delete(address);
    free(address);
  };
  memory.copy = (to, from, bytes) => {
    for (const address of [to, from]) use(blockAt(address), "a copy");
    copy(to, from, bytes);
  };
  interceptRun(backend, (run) => (op, args) => {
    for (const { address } of tensorsIn(args)) use(blockAt(address), `a use by ${op}`);
    if (op === "gemm") {
      record.push(`${isAside ? "side" : "main"} gemm`);
      liveAtProducts.push(backend.memoryUse().live);
    }
    run(op, args);
  });
  backend.onSideStream = (body) => {
    if (isAside) return body();
    works.push(new Set());
    isAside = true;
    try {
      return body();
    } finally {
      isAside = false;
    }
  };
  const exchange = <K extends CollectiveName>(op: K, args: CollectiveArgs[K]): void => {
    record.push(`${isAside ? "side" : "main"} ${op}`);
    const gatherArgs = args as Partial<CollectiveArgs["allGather"] & CollectiveArgs["reduceScatter"]>;
    for (const { x, out } of gatherArgs.parts ?? [])
      for (let rank = 0; rank < RANKS; rank++)
        memory.copy(out.address + rank * x.byteLength, x.address, x.byteLength);
    const { x, out } = gatherArgs;
    if (!x || !out) return;
    if (x.address === out.address) use(blockAt(x.address), op);
    else memory.copy(out.address, x.address, out.byteLength);
  };
  return {
    group: new ProcessGroup(communicatorOf(backend, exchange)),
    record,
    liveAtProducts,
    dispose: () => backend.dispose(),
  };
}

function communicatorOf(backend: Backend, run: Communicator["run"]): Communicator {
  const support = { ok: true, agrees: "bits" } as const;
  return {
    ...{ id: "one", rank: 0, ranks: Array.from({ length: RANKS }, (_, rank) => rank), backend, run },
    transport: { kind: "loopback", description: "one rank that stands for all" },
    supports: () => support,
    supportsPlan: () => support,
    settled: async () => undefined,
    subgroup: () => {
      throw new Error("this group is not divided");
    },
    abort: () => undefined,
    dispose: async () => undefined,
  };
}

function tensorsIn(value: unknown): readonly Tensor[] {
  if (value instanceof Tensor) return value.byteLength > 0 ? [value] : [];
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return [];
  return Object.values(value).flatMap(tensorsIn);
}
