/**
 * Each public module has a row in the table of modules, by which all laws of modules test it, and the row's traits are correct.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { LockstepError, UnsupportedError } from "../../../src/errors.js";
import { zeros } from "../../../src/ops/create.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { MXFP8BlockScaling } from "../../../src/recipes/block-scaled.js";
import { Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { noGrad } from "../../../src/tape/grad-mode.js";
import type { Variable } from "../../../src/tape/variable.js";
import { QuantizedTensor } from "../../../src/tensor/quantized.js";
import { Scope } from "../../../src/tensor/scope.js";
import { createInputs, regionOptions, rowsWhere } from "../harness/modules/calls.js";
import { type BuiltModule, SETTING_NAMES } from "../harness/modules/row.js";
import { MODULES, wrapModule } from "../harness/modules/table.js";
import { listFiles, ROOT } from "../harness/sources/sources.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const exact = useBackend({ threads: 1, datapath: "exact" });
const SIZES = { rows: 32, from: 32, to: 64, middle: 96 };
const seededOptions = () => ({ random: new RandomState(7n) });

/** The classes of `src` that extend `Module`, directly or indirectly. */
function moduleClasses(): readonly { readonly name: string; readonly isAbstract: boolean }[] {
  const classes = listFiles("src").flatMap((file) =>
    [...textOf(file).matchAll(/^export (abstract )?class (\w+)\b.*? extends (\w+) \{$/gm)].map(
      ([, abstract, name = "", base = ""]) => ({ name, base, isAbstract: abstract !== undefined }),
    ),
  );
  const heirsOf = (base: string): typeof classes =>
    classes.filter((heir) => heir.base === base).flatMap((heir) => [heir, ...heirsOf(heir.name)]);
  return heirsOf("Module");
}

const textOf = (file: string): string => readFileSync(join(ROOT, file), "utf8");

/** The sources of the entry points that package.json lists. */
function entryPoints(): readonly string[] {
  const files = textOf("package.json").match(/dist\/src\/(?!backends)[\w/-]+\.js/g) ?? [];
  return [...new Set(files)].map((file) => file.replace("dist/", "").replace(/js$/, "ts"));
}

describe("the table of modules", () => {
  const exportedTypes = entryPoints().map(textOf).join("\n");
  const isPublic = (name: string): boolean => new RegExp(`\\b${name}\\b`).test(exportedTypes);
  const types = Object.values(MODULES).map(({ type }) => type.name);

  it("has a row for each public class that can be created, and no other", () => {
    expect(entryPoints()).toContain("src/models/index.ts");
    const classes = moduleClasses().filter(({ name, isAbstract }) => isPublic(name) && !isAbstract);
    expect([...new Set(types)].sort()).toEqual(classes.map(({ name }) => name).sort());
  });
});

describe.each(rowsWhere())("the row of %s", (_, row) => {
  /** The results of a module in a region, without gradients. */
  const run = (builtModule: BuiltModule, recipe: Recipe | undefined): readonly Variable[] => {
    const inputs = createInputs(backend(), builtModule, SIZES);
    return noGrad(() => autocast(regionOptions(recipe), () => builtModule.run(inputs)));
  };

  it("lists the settings of its constructor", () => {
    const isTaken = (name: string): boolean => {
      try {
        row.buildUnfiltered(backend(), SIZES, { ...seededOptions(), [name]: undefined }).dispose();
        return true;
      } catch (error) {
        expect(String(error)).toContain(name);
        return false;
      }
    };
    if (isTaken("noOption")) return expect(row.sizes, "its constructor is private").toEqual({});
    expect(SETTING_NAMES.filter(isTaken).sort()).toEqual([...row.takes].sort());
  });

  it("lists the sizes of its constructor", () => {
    for (const [name, size] of Object.entries(row.sizes))
      for (const invalidSize of [0, -1, 1.5, Number.NaN])
        expect(
          () => row.build(backend(), { ...SIZES, [size]: invalidSize }),
          `${name} ${invalidSize}`,
        ).toThrow(name);
  });

  it("lists the options of a call", () => {
    using _scope = new Scope();
    for (const [name, value] of [
      ["isFirstMicrobatch", () => true],
      ["skipFp8WeightUpdate", () => zeros(backend(), "f32", [1])],
      ["fp8Output", () => true],
      ["fp8Grad", () => true],
    ] as const) {
      using builtModule = row.build(backend(), SIZES, seededOptions());
      const inputs = createInputs(backend(), builtModule, SIZES);
      const call = { [name]: value() };
      const runCall = () =>
        autocast({ recipe: new Float8CurrentScaling() }, () => builtModule.runUnfiltered(inputs, call));
      if (row.call.includes(name))
        expect(runCall()[0]?.value instanceof QuantizedTensor).toBe(name === "fp8Output");
      else if (row.call.length > 0) expect(runCall, name).toThrow(LockstepError);
    }
  });

  it("says whether a recipe quantizes its products", () => {
    using _scope = new Scope();
    const [plainResults, quantizedResults] = [undefined, new MXFP8BlockScaling()].map((recipe) => {
      using builtModule = row.build(backend(), SIZES, seededOptions());
      return run(builtModule, recipe).map(({ tensor }) => [...tensor.dataSync()].join());
    });
    expect(plainResults?.[0] !== quantizedResults?.[0]).toBe(row.quantizes);
  });

  it("says whether it computes attention", () => {
    using _scope = new Scope();
    using builtModule = row.build(exact(), SIZES, seededOptions());
    const inputs = createInputs(exact(), builtModule, SIZES);
    const runCall = () => noGrad(() => builtModule.run(inputs));
    if (row.attends) expect(runCall).toThrow(UnsupportedError);
    else expect(runCall).not.toThrow();
  });

  it("lists its products and its last biases, and whether it consists of modules", () => {
    using _scope = new Scope();
    using builtModule = row.build(backend(), SIZES, seededOptions());
    const { module } = builtModule;
    const [out] = run(builtModule, undefined);
    const shapes = new Map([...module.namedParameters()].map(([name, { shape }]) => [name, shape]));
    for (const { weight, bias, from, to: outFeatures } of row.products?.(SIZES) ?? []) {
      expect(shapes.get(weight)).toEqual([outFeatures, from]);
      expect(shapes.get(bias)).toEqual([outFeatures]);
    }
    if (row.products) expect(module.namedQuantizations().size).toBe(row.products(SIZES).length);
    expect(row.lastBiases !== undefined).toBe(row.hasBiasMethod);
    for (const name of row.lastBiases ?? []) expect(shapes.get(name)).toEqual([out?.shape.at(-1)]);
    expect(shapes.size === 0).toBe(row.hasNoParameters === true);
    expect(module.namedModules().size > 1).toBe(row.composed !== undefined);
  });

  it("finds the inputs of a module that was created elsewhere", () => {
    using builtModule = row.build(backend(), SIZES, seededOptions());
    expect(wrapModule(builtModule.module)?.inputs(8)).toEqual(builtModule.inputs(8));
  });
});
