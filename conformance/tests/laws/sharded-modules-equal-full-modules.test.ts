/**
 * Every module of the table has the bits of one rank if `fullyShard` divides its parameters: results, gradients, parameters,
 * masters and buffers. All ranks have the same samples, so that the mean of their gradients is exact. A checkpoint of the ranks
 * continues on one rank.
 */
import { describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import type { ProcessGroup } from "../../../src/collectives/group.js";
import { loopbackOver } from "../../../src/collectives/loopback/loopback.js";
import { loadShardedCheckpoint, saveShardedCheckpoint } from "../../../src/io/index.js";
import { fullyShard } from "../../../src/parallel/fsdp/fully-shard.js";
import { covering, product } from "../../arbitraries/covering.js";
import { rowsWhere, testedCases } from "../harness/modules/calls.js";
import { ModuleRun, readAll } from "../harness/modules/module-run.js";
import { moduleRow } from "../harness/modules/table.js";
import { useBackends } from "../harness/ranks/backends.js";
import { DETERMINISTIC_RECIPES } from "../harness/recipes.js";
import { useFolder } from "../io/folder.js";

let folder = "";
useFolder((createdFolder) => {
  folder = createdFolder;
});

const MAX_RANKS = 4;
const backends = useBackends(MAX_RANKS);
const groupsOf = (ranks: number): readonly ProcessGroup[] => loopbackOver(backends.slice(0, ranks), 20_000);

/** How parameters are divided: among `shard` ranks, and copied `replicate` times. The mean over 2^n ranks is exact. */
const DIVISIONS = {
  "1 rank": { replicate: 1, shard: 1, rowMultiple: 1 },
  "2 ranks": { replicate: 1, shard: 2, rowMultiple: 1 },
  "2 ranks with 96 and 32 of 128 rows": { replicate: 1, shard: 2, rowMultiple: 96 },
  "a mesh of 2 by 2 ranks": { replicate: 2, shard: 2, rowMultiple: 32 },
} as const;
type Division = keyof typeof DIVISIONS;

const MODULES = rowsWhere(({ hasNoParameters }) => !hasNoParameters).map(([name]) => name);
const DRAWN = covering(
  product({
    module: MODULES,
    recipe: Object.keys(DETERMINISTIC_RECIPES),
    division: Object.keys(DIVISIONS) as Division[],
  }),
  2,
);
const isPossible = ({ module, division }: (typeof DRAWN)[number]): boolean =>
  // ranks of one process cannot read results on the host before all ranks have run
  moduleRow(module).readsHost === undefined || division === "1 rank";
const CASES = testedCases(DRAWN.filter(isPossible), ({ module }) => moduleRow(module));

describe("a module", () => {
  it.each(CASES)("$module under $recipe, divided among $division", async (testCase) => {
    const row = moduleRow(testCase.module);
    const { replicate, shard, rowMultiple } = DIVISIONS[testCase.division];
    const recipe = DETERMINISTIC_RECIPES[testCase.recipe];
    using full = new ModuleRun(backends[0] as Backend, row, 1n);
    const options = { rowMultiple, mesh: replicate > 1 ? { replicate, shard } : undefined };
    const ranks = groupsOf(replicate * shard).map((group) => ({
      group,
      run: new ModuleRun(group.backend, row, 1n, (module) => fullyShard(module, group, options)),
    }));
    const expectEqualState = async () => {
      const expected = await full.elements();
      const elements = await Promise.all(ranks.map(({ run }) => run.elements()));
      for (let copy = 0; copy < replicate; copy++) {
        const shards = elements.slice(copy * shard, (copy + 1) * shard);
        const fullResults = expected.map(([name], i) => [
          name,
          shards.flatMap((shardResults) => shardResults[i]?.[1] ?? []),
        ]);
        expect(fullResults, `copy ${copy}`).toEqual(expected);
      }
      for (const { run } of ranks) expect(run.scales()).toBe(full.scales());
    };
    await expectEqualState();
    for (const number of [0, 1]) {
      const expected = await readAll(full.train(number, recipe?.()));
      const answers = ranks.map(({ run }) => run.train(number, recipe?.()));
      for (const answer of answers) expect(await readAll(answer)).toEqual(expected);
      await expectEqualState();
    }
    await Promise.all(ranks.map(({ run, group }) => saveShardedCheckpoint(folder, { ...run.state, group })));
    for (const { run } of ranks) run.dispose();
    using loadedRun = new ModuleRun(backends[0] as Backend, row, 2n);
    const [group] = groupsOf(1) as readonly [ProcessGroup];
    await loadShardedCheckpoint(folder, { ...loadedRun.state, group });
    expect(await loadedRun.elements()).toEqual(await full.elements());
    expect(await readAll(loadedRun.train(2, recipe?.()))).toEqual(await readAll(full.train(2, recipe?.())));
  });
});
