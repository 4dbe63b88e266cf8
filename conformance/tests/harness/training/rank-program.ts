/**
 * One rank of recorded runs, as a process: `lockstep launch -n RANKS FILE BACKEND STEPS TITLE...`. On a GPU it uses device
 * LOCAL_RANK. Rank 0 prints the hashes of each run as a line of JSON.
 */
import { openBackend } from "../../../../src/backends/open.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { openProcessGroup } from "../../../../src/collectives/processes/open.js";
import { empty } from "../../../../src/ops/create.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { combineRankHashes, rankSteps } from "./parallel.js";
import { loadParallelRuns, planTitle, selectRecordedHashes } from "./parallel-recorded.js";

const HASH = 16;

/** Gathers the hashes of all ranks, and combines the hashes of each step. `hashes` has the hashes of this rank. */
async function gatherHashes(group: ProcessGroup, hashes: readonly string[]): Promise<readonly string[]> {
  using scope = new Scope();
  const bytes = new TextEncoder().encode(hashes.join(""));
  const gathered = scope.keep(group.allGather(empty(group.backend, "u8", [bytes.length]).write(bytes)));
  scope.dispose();
  const text = new TextDecoder().decode((await gathered.data()) as Uint8Array);
  gathered.dispose();
  const rankHash = (rank: number, step: number): string => {
    const start = (rank * hashes.length + step) * HASH;
    return text.slice(start, start + HASH);
  };
  return hashes.map((_, step) => combineRankHashes(group.ranks.map((_, rank) => rankHash(rank, step))));
}

const [backendName = "wasm", count = "2", ...titles] = process.argv.slice(2);
const steps = Number(count);
const device = Number(process.env.LOCAL_RANK ?? 0);
const backend =
  backendName === "cuda"
    ? await openBackend("cuda", { device })
    : await openBackend("wasm", { threads: 1, datapath: "hopper" });
const group = await openProcessGroup(backend);
for (const title of titles) {
  const run = loadParallelRuns().find((each) => planTitle(each) === title);
  if (!run) throw new Error(`there is no recorded run "${title}"`);
  const rankHashes = (await rankSteps([group], run, steps)).map(([hash]) => hash as string);
  const hashes = selectRecordedHashes(await gatherHashes(group, rankHashes));
  if (group.rank === 0) console.log(JSON.stringify({ title, hashes, transport: group.transport.kind }));
}
await group.dispose();
const { live } = backend.memoryUse();
await backend.dispose();
if (live !== 0) throw new Error(`rank ${group.rank} left ${live} bytes`);
