/**
 * Properties of quantizers, recipes and formats are fields of their rows. Code elsewhere does not compare names to
 * decide something, except in the files listed here.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { BLOCK_FORMAT_NAMES, TILES } from "../../../src/formats/block.js";
import { HARDWARE_FAMILIES } from "../../../src/formats/chips.js";
import { SCALAR_FORMAT_NAMES } from "../../../src/formats/derive.js";
import { FORMATS, RECIPES } from "../../../src/recipes/table.js";
import { findDecisions, type WatchedNames } from "../harness/sources/decisions.js";

/** The files that may compare names: those of the rows, and of classes with these names. */
const ROOMS = ["src/quantizers/", "src/formats/", "src/recipes/table.ts"];

/** Other files that may compare these names, with the reason. */
const EXCEPTIONS: Readonly<Record<string, readonly string[]>> = {
  // this file alone creates the quantizers of a recipe: a StandardRecipe has a row of the table, a CustomRecipe a function of the
  // caller
  "src/recipes/quantizer-for.ts": ["CustomRecipe", "StandardRecipe"],
  // this file alone says how a quantizer makes the copies of a tensor; these three have no spec
  "src/recipes/role.ts": ["FakeQuantizer", "HybridQuantizer", "IdentityQuantizer"],
  // the quantizers of a CustomRecipe do not exist yet, so only standard recipes can be checked
  "src/recipes/support.ts": ["StandardRecipe"],
  // this file alone decides which recipe keeps scales; layers call isDelayed
  "src/recipes/is-delayed.ts": ["DelayedScaling"],
  // in TransformerEngine, products with custom quantizers accumulate like those of current scaling
  "src/recipes/custom.ts": ["current"],
};

const sources = readdirSync("src", { recursive: true, encoding: "utf8" })
  .filter((path) => path.endsWith(".ts"))
  .map((path) => join("src", path).replaceAll("\\", "/"));

const classes = new Set(
  sources
    .filter((path) => path.startsWith("src/quantizers/") || path.startsWith("src/recipes/"))
    .flatMap((path) => [...readFileSync(path, "utf8").matchAll(/export (?:abstract )?class (\w+)/g)])
    .map(([, name]) => name as string)
    .filter((name) => /.(Quantizer|Scaling|Recipe)$/.test(name)),
);

const WATCHED: WatchedNames = {
  strings: new Set<string>([
    ...BLOCK_FORMAT_NAMES,
    ...TILES,
    ...SCALAR_FORMAT_NAMES,
    ...Object.keys(RECIPES),
    ...Object.keys(FORMATS),
    ...HARDWARE_FAMILIES,
  ]),
  classes,
  tables: new Set(["BLOCK_FORMATS", "SCALAR_FORMATS", "RECIPES", "FORMATS"]),
  keys: new Set(BLOCK_FORMAT_NAMES),
};

it("the search knows the classes and names that it looks for", () => {
  for (const name of ["NVFP4Quantizer", "MXFP6Quantizer", "DelayedScaling", "CustomRecipe"])
    expect(classes).toContain(name);
  for (const name of ["mxfp4", "1x128", "e2m1", "delayed", "HYBRID"]) expect(WATCHED.strings).toContain(name);
});

it("the search finds every way to decide by a name", () => {
  const PLANTED_SOURCES: readonly (readonly [source: string, names: readonly string[]])[] = [
    ['if (spec.quantizer === "nvfp4") f();', ["nvfp4"]],
    ['const x = "mxfp8" !== name ? 1 : 2;', ["mxfp8"]],
    ['switch (tile) { case "1x128": f(); }', ["1x128"]],
    ['["e4m3", "bf16"].includes(format)', ["e4m3", "bf16"]],
    ['name.startsWith("mxfp4")', ["mxfp4"]],
    ["if (q instanceof NVFP4Quantizer) f();", ["NVFP4Quantizer"]],
    ['const t = { "fp8-block": f, nvfp4: g };', ["fp8-block", "nvfp4"]],
    ['use(RECIPES.delayed, BLOCK_FORMATS["mxfp6"]);', ["delayed", "mxfp6"]],
    ['make("nvfp4", { format: "e2m1" }); const a = ["e4m3"]; if (x.kind === "other") f();', []],
  ];
  for (const [source, names] of PLANTED_SOURCES) expect(findDecisions(source, WATCHED)).toEqual(names);
});

it("only the tables' rows decide by the name of a quantizer, a recipe, a format or a chip", () => {
  const decidingFiles = sources.flatMap((path) => {
    if (ROOMS.some((room) => path.startsWith(room))) return [];
    const allowedNames = EXCEPTIONS[path] ?? [];
    const names = findDecisions(readFileSync(path, "utf8"), WATCHED).filter(
      (name) => !allowedNames.includes(name),
    );
    return names.length > 0 ? [`${path}: ${names.join(", ")}`] : [];
  });
  expect(decidingFiles).toEqual([]);
});

it("every exception is used", () => {
  for (const [path, names] of Object.entries(EXCEPTIONS)) {
    const decisions = findDecisions(readFileSync(path, "utf8"), WATCHED);
    for (const name of names) expect(decisions, path).toContain(name);
  }
});
