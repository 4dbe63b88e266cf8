/**
 * Replays the first steps of recorded training runs on two ranks, with pipeline or context parallelism. `RECORD=1` records them
 * again.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import { loopbackOver } from "../../../../src/distributed/loopback/loopback.js";
import { RECIPE_NAMES, type RecipeName } from "../../harness/training/run.js";
import { STAGED, type Staged, stagedSteps } from "../../harness/training/stages.js";

interface StagedRun {
  readonly task: Staged;
  readonly recipe: RecipeName;
  /** For each step: the hash of all losses and parameters up to that step. */
  readonly hashes: readonly string[];
}

const VECTORS = new URL("../../../vectors/training-stages.json", import.meta.url);
/** The number of recorded steps. It is smaller for transformers, which take longer. */
const RECORDED: Readonly<Record<Staged, number>> = {
  "mlp in a pipeline": 100,
  "transformer in a pipeline": 40,
  "transformer by positions": 40,
};
const RECORDS = process.env.RECORD === "1";

let recorded: readonly StagedRun[] = existsSync(VECTORS)
  ? (JSON.parse(readFileSync(VECTORS, "utf8")) as { readonly runs: StagedRun[] }).runs
  : [];
describe("training on two ranks", () => {
  it.each(STAGED)(
    "%s, under every recipe",
    async (task) => {
      const backends: Backend[] = [];
      for (let rank = 0; rank < 2; rank++)
        backends.push(await openBackend("wasm", { threads: 1, datapath: "hopper" }));
      for (const recipe of RECIPE_NAMES) {
        const steps = RECORDS ? RECORDED[task] : 1;
        const hashes = await stagedSteps(loopbackOver(backends, 20_000), task, recipe, steps);
        if (RECORDS) {
          const others = recorded.filter((each) => each.task !== task || each.recipe !== recipe);
          recorded = [...others, { task, recipe, hashes }];
          writeFileSync(VECTORS, `${JSON.stringify({ runs: recorded }, null, 1)}\n`);
          continue;
        }
        const found = recorded.find((each) => each.task === task && each.recipe === recipe);
        if (!found) throw new Error("this run is not recorded; record all anew by RECORD=1");
        expect(hashes, recipe).toEqual(found.hashes.slice(0, steps));
        expect(found.hashes).toHaveLength(RECORDED[task]);
      }
      for (const backend of backends) {
        expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
        await backend.dispose();
      }
    },
    RECORDS ? 3_600_000 : 60_000,
  );
});
