/** Every module of the table continues from a checkpoint with the bits of the run that was saved, under every recipe. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { loadCheckpoint, saveCheckpoint } from "../../../src/io/index.js";
import { product } from "../../arbitraries/covering.js";
import { rowsWhere, testedCases } from "../harness/modules/calls.js";
import { ModuleRun, readAll } from "../harness/modules/module-run.js";
import { moduleRow } from "../harness/modules/table.js";
import { useBackend } from "../harness/suite.js";
import { RECIPE_NAMES, RECIPES_UNDER_TEST } from "../harness/training/run.js";
import { useFolder } from "../io/folder.js";

let path = "";
useFolder((folder) => {
  path = join(folder, "run.safetensors");
});

const backend = useBackend({ threads: 1, datapath: "hopper" });
const MODULES = rowsWhere(({ hasNoParameters }) => !hasNoParameters).map(([name]) => name);
const CASES = testedCases(product({ module: MODULES, recipe: RECIPE_NAMES }), ({ module }) =>
  moduleRow(module),
);

describe("a checkpoint", () => {
  it.each(CASES)("of $module, trained under $recipe, loads into another module in use", async (given) => {
    const row = moduleRow(given.module);
    const recipe = RECIPES_UNDER_TEST[given.recipe]?.();
    using saved = new ModuleRun(backend(), row, 1n);
    using loaded = new ModuleRun(backend(), row, 2n);
    const train = (run: ModuleRun, number: number) => readAll(run.train(number, recipe));
    const stateOf = async (run: ModuleRun) => [
      await run.elements(),
      run.scales(),
      `${run.random.seed} ${run.random.offset}`,
    ];
    for (const number of [0, 1]) await train(saved, number);
    await train(loaded, 7);
    await saveCheckpoint(path, saved.state);
    await loadCheckpoint(path, loaded.state);
    expect(await stateOf(loaded)).toEqual(await stateOf(saved));
    expect(await train(loaded, 2)).toEqual(await train(saved, 2));
    expect(await stateOf(loaded)).toEqual(await stateOf(saved));
  });
});
