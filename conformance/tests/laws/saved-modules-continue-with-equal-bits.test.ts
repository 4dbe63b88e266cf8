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
  it.each(CASES)("of $module, trained under $recipe, loads into another module in use", async (testCase) => {
    const row = moduleRow(testCase.module);
    const recipe = RECIPES_UNDER_TEST[testCase.recipe]?.();
    using savedRun = new ModuleRun(backend(), row, 1n);
    using loadedRun = new ModuleRun(backend(), row, 2n);
    const train = (run: ModuleRun, number: number) => readAll(run.train(number, recipe));
    const stateOf = async (run: ModuleRun) => [
      await run.elements(),
      run.scales(),
      `${run.random.seed} ${run.random.offset}`,
    ];
    for (const number of [0, 1]) await train(savedRun, number);
    await train(loadedRun, 7);
    await saveCheckpoint(path, savedRun.state);
    await loadCheckpoint(path, loadedRun.state);
    expect(await stateOf(loadedRun)).toEqual(await stateOf(savedRun));
    expect(await train(loadedRun, 2)).toEqual(await train(savedRun, 2));
    expect(await stateOf(loadedRun)).toEqual(await stateOf(savedRun));
  });
});
