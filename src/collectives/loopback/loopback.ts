/** Groups of ranks in one process. Their results define the operations of all groups. */
import type { Backend } from "../../backends/backend.js";
import { datapathName } from "../../backends/backend.js";
import { type OpenOptions, openBackend } from "../../backends/open.js";
import { integer, optionsOf } from "../../options.js";
import { ProcessGroup } from "../group.js";
import { DEFAULT_TIMEOUT_MS, timeout } from "../timeout.js";
import { StreamBackend } from "./backend.js";
import { LoopbackCommunicator } from "./communicator.js";
import { World } from "./world.js";

/** The options of `loopbackGroup`. */
export interface LoopbackOptions extends Pick<OpenOptions, "datapath"> {
  /** The number of threads of each rank. Default 1. */
  readonly threads?: number | undefined;
  /** How long reading a result waits for ranks that have not made their call, in milliseconds. Default 600,000. */
  readonly timeoutMs?: number | undefined;
}

const MAX_RANKS = 64;

const ranks = integer(1, MAX_RANKS);
const checkLoopback = optionsOf<LoopbackOptions>({
  threads: integer(1, 64),
  datapath: datapathName,
  timeoutMs: timeout,
});

/**
 * Creates a group of `size` ranks in this process, each with its own reference backend. Returns the groups of all ranks, in order
 * of ranks. The programs of the ranks can run one after another, or concurrently as promises. A result that depends on a rank
 * which has not made its call yet must be read by `await data()`, because a blocking read would keep that rank from running.
 * Disposing of a group disposes of its backend.
 * @throws `ArgumentError` for an invalid size or option value, `BackendError` if a reference backend cannot be opened.
 */
export async function loopbackGroup(size: number, options: LoopbackOptions = {}): Promise<ProcessGroup[]> {
  ranks("loopbackGroup", "size", size);
  const { threads = 1, timeoutMs, datapath } = checkLoopback("loopbackGroup", options);
  const backends: Backend[] = [];
  try {
    for (let rank = 0; rank < size; rank++)
      backends.push(await openBackend("wasm", { threads, ...(datapath ? { datapath } : {}) }));
  } catch (error) {
    for (const backend of backends) await backend.dispose();
    throw error;
  }
  return loopbackOver(backends, timeoutMs);
}

/** As `loopbackGroup`, with backends that the caller has opened. */
export function loopbackOver(backends: readonly Backend[], timeoutMs = DEFAULT_TIMEOUT_MS): ProcessGroup[] {
  const world = new World(backends.length, timeoutMs);
  const members = world.ranks.map(({ number }) => number);
  return world.ranks.map((rank) => {
    const backend = new StreamBackend(backends[rank.number] as Backend, rank);
    return new ProcessGroup(
      new LoopbackCommunicator(backend, rank, { id: "world", rank: rank.number, ranks: members }),
    );
  });
}
