/**
 * One rank of recorded runs, as a process: `lockstep launch -n RANKS FILE BACKEND STEPS TITLE...`. On a GPU it uses device
 * LOCAL_RANK. Rank 0 prints the hashes of each run as a line of JSON.
 */
import { openBackend } from "../../../../src/backends/open.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { openProcessGroup } from "../../../../src/collectives/processes/open.js";
import { empty } from "../../../../src/ops/create.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { hashOfRanks, rankSteps } from "./parallel.js";
import { hashesAt, loadParallelRuns, titleOf } from "./parallel-recorded.js";

const HASH = 16;

/** Combines the ranks' hashes of each step; `own` has this rank's. */
async function together(group: ProcessGroup, hashes: readonly string[]): Promise<readonly string[]> {
  using scope = new Scope();
  const bytes = new TextEncoder().encode(hashes.join(""));
  const all = scope.keep(group.allGather(empty(group.backend, "u8", [bytes.length]).write(bytes)));
  scope.dispose();
  const text = new TextDecoder().decode((await all.data()) as Uint8Array);
  all.dispose();
  const hashOf = (rank: number, step: number): string => {
    const at = (rank * hashes.length + step) * HASH;
    return text.slice(at, at + HASH);
  };
  return hashes.map((_, step) => hashOfRanks(group.ranks.map((_, rank) => hashOf(rank, step))));
}

const [on = "wasm", count = "2", ...titles] = process.argv.slice(2);
const steps = Number(count);
const device = Number(process.env.LOCAL_RANK ?? 0);
const backend =
  on === "cuda"
    ? await openBackend("cuda", { device })
    : await openBackend("wasm", { threads: 1, datapath: "hopper" });
const group = await openProcessGroup(backend);
for (const title of titles) {
  const run = loadParallelRuns().find((each) => titleOf(each) === title);
  if (!run) throw new Error(`there is no recorded run "${title}"`);
  const rankHashes = (await rankSteps([group], run, steps)).map(([hash]) => hash as string);
  const hashes = hashesAt(await together(group, rankHashes));
  if (group.rank === 0) console.log(JSON.stringify({ title, hashes, transport: group.transport.kind }));
}
await group.dispose();
const { live } = backend.memoryUse();
await backend.dispose();
if (live !== 0) throw new Error(`rank ${group.rank} left ${live} bytes`);
