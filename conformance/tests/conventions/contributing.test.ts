/**
 * The lists in CONTRIBUTING.md of files to edit for each kind of addition have the files that are derived from the sources.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { OPERATOR_NAMES } from "../../../src/backends/elementwise.js";
import { BLOCK_FORMATS } from "../../../src/formats/block.js";
import { CHIPS } from "../../../src/formats/chips.js";
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { listFiles, ROOT, readImports } from "../harness/sources/sources.js";

const textOf = (file: string): string => readFileSync(join(ROOT, file), "utf8");
const PAGE = textOf("CONTRIBUTING.md");
const FLOORS = ["src", "assembly", "kernels", "native", "conformance"];
const SOURCES = FLOORS.flatMap(listFiles).filter(
  (file) => /\.(ts|cu|cc|h)$/.test(file) && !file.includes(".gen."),
);
const GENERIC = "FAMILY/OPERATION";
/** The test file of an operation, which is optional: it tests what the laws do not cover. */
const OPTIONAL = `conformance/tests/${GENERIC}.test.ts`;

const sectionOf = (title: string): string =>
  PAGE.split(/^## /m).find((section) => section.startsWith(`${title}\n`)) ?? "";

/** The paths in the list items of the section with that title. */
function listedPaths(title: string): string[] {
  return [...sectionOf(title).matchAll(/^- `([^`]+)`/gm)].map(([, path = ""]) => path);
}

/** The paths of the files that an addition may also need: the first column of the section's table. */
const optionalPaths = (title: string): string[] =>
  [...sectionOf(title).matchAll(/^\| `(.*?)` \|/gm)].map(([, path = ""]) => path);

const OPERATIONS = [
  ...new Set(
    readImports("src/backends/wasm/lowerings.gen.ts").map((path) =>
      path.slice("src/backends/wasm/".length).replace(/(\.gen)?\.ts$/, ""),
    ),
  ),
].filter((path) => path.includes("/"));

/** The paths of an operation's own files, with FAMILY/OPERATION in place of its name. */
function pathsOf(operation: string): string[] {
  const [, stem = ""] = operation.split("/");
  const paths = SOURCES.flatMap((file) =>
    [`${operation}/${stem}`, operation]
      .filter((path) => file.includes(`/${path}.`))
      .map((path) => file.replace(path, GENERIC)),
  );
  return [...new Set(paths)];
}

/**
 * The paths that most operations have. (Some operations have a folder instead of a file, or are composed of other operations.)
 */
function mostCommon<T>(items: readonly T[]): T[] {
  const counts = new Map<T, number>();
  for (const item of items) counts.set(item, (counts.get(item) ?? 0) + 1);
  return [...counts].filter(([, count]) => count >= OPERATIONS.length * 0.7).map(([item]) => item);
}

/**
 * The files below src that every family has and that are edited by hand, with FAMILY in place of the family's name:
 * FAMILY/NAME.ts or FAMILY.ts.
 */
function tablesOfFamilies(): string[] {
  const families = [...new Set(OPERATIONS.map((operation) => operation.split("/")[0] as string))];
  const files = listFiles("src").filter((file) => !file.includes(".gen."));
  const genericPaths = files.flatMap((file) =>
    families
      .filter((family) => file.endsWith(`/${family}.ts`) || file.includes(`/${family}/`))
      .map((family) => file.replace(new RegExp(`/${family}(/|\\.ts$)`), "/FAMILY$1")),
  );
  return [...new Set(genericPaths)].filter((path) =>
    families.every((family) => existsSync(join(ROOT, path.replace("FAMILY", family)))),
  );
}

/** The files that contain all of these names. */
function filesNaming(names: readonly string[], folder: string): string[] {
  const namePatterns = names.map((name) => new RegExp(`(?<![\\w-])${name}(?![\\w-])`));
  return listFiles(folder).filter((file) => {
    if (!file.endsWith(".ts") || file.includes(".gen.")) return false;
    const text = textOf(file);
    return namePatterns.every((word) => word.test(text));
  });
}

describe("an operation", () => {
  const ownFiles = listedPaths("Add an operation").filter((path) => path.includes(GENERIC));

  it("has the files of its own that are listed, and the lowerings that it may need", () => {
    const lowerings = optionalPaths("Add an operation").filter((path) => path.includes(GENERIC));
    expect([...ownFiles, ...lowerings].sort()).toEqual(
      mostCommon(OPERATIONS.flatMap(pathsOf))
        .filter((path) => path !== OPTIONAL)
        .sort(),
    );
  });

  it("has no other file of its own if its lowerings are declared", () => {
    const isGenerated = (operation: string) =>
      ["wasm", "cuda"].every((backend) => !existsSync(join(ROOT, `src/backends/${backend}/${operation}.ts`)));
    const declaredOperations = OPERATIONS.filter(
      (operation) => existsSync(join(ROOT, `src/ops/${operation}.ts`)) && isGenerated(operation),
    );
    expect(declaredOperations).toContain("rows/gather");
    const files = pathsOf("rows/gather").filter((path) => path !== OPTIONAL);
    expect(files.sort()).toEqual(ownFiles.sort());
  });

  it("is in the tables that are listed, and in no others of src, assembly and conformance/operations", () => {
    const tables = ["src", "assembly", "conformance/operations", "conformance/tests/laws"]
      .flatMap(listFiles)
      .filter((file) => {
        if (file.includes(".gen.")) return false;
        const text = textOf(file);
        const namedOperations = OPERATIONS.filter((operation) => {
          const [, stem = ""] = operation.split("/");
          const camel = stem.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
          return (
            text.includes(`${operation}"`) ||
            text.includes(`${operation}.`) ||
            new RegExp(`\\b${camel}\\b`).test(text)
          );
        });
        return namedOperations.length >= OPERATIONS.length * 0.7;
      });
    expect(
      listedPaths("Add an operation")
        .filter((path) => !path.includes(GENERIC) && !path.endsWith(".md"))
        .sort(),
    ).toEqual([...tables, ...tablesOfFamilies()].sort());
  });
});

describe("an elementwise operator", () => {
  it("is in each listed file, and the list has every file of src, assembly and the oracle that names all of them", () => {
    const tables = ["src", "assembly", "conformance/oracle"].flatMap((folder) =>
      filesNaming(OPERATOR_NAMES, folder),
    );
    expect(tables).not.toEqual([]);
    expect(tables.filter((file) => !listedPaths("Add an elementwise operator").includes(file))).toEqual([]);
  });
});

describe("a quantizer and a format", () => {
  it("are in each listed file, and the list has every file of src that names all of them", () => {
    for (const [title, names] of [
      ["Add a quantizer", Object.keys(BLOCK_FORMATS)],
      ["Add a format", Object.keys(SCALAR_FORMATS)],
    ] as const) {
      const tables = [
        "src",
        "conformance/oracle",
        "conformance/arbitraries",
        "conformance/operations",
      ].flatMap((folder) => filesNaming(names, folder));
      expect(tables).not.toEqual([]);
      expect(
        tables.filter((file) => !listedPaths(title).includes(file)),
        title,
      ).toEqual([]);
    }
  });

  it("are not listed by class name, all together, anywhere in src or among valid calls", () => {
    const classes = listFiles("src/quantizers").flatMap((file) =>
      [...textOf(file).matchAll(/^export class (\w+Quantizer)\b/gm)].map(([, name = ""]) => name),
    );
    expect(classes.length).toBeGreaterThan(5);
    const tables = ["src", "conformance/tests/harness/arguments"].flatMap((folder) =>
      filesNaming(classes, folder),
    );
    expect(tables).toEqual([]);
  });

  it.each([
    "Add a format",
    "Add a quantizer",
    "Add an elementwise operator",
    "Add an operation",
    "Add a module",
    "Add a recipe",
    "Add a dialect",
    "Add a command",
    "Add a chip",
  ])("%s: every listed file exists", (title) => {
    const paths = listedPaths(title).filter((path) => !/FAMILY|NAME/.test(path));
    expect(paths.length).toBeGreaterThan(1);
    expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});

/** The names of classes that extend the class `base` in the files of a folder. */
function heirsOf(base: string, folder: string): string[] {
  const heir = new RegExp(`^export class (\\w+) extends ${base}\\b`, "gm");
  return listFiles(folder).flatMap((file) => [...textOf(file).matchAll(heir)].map(([, name = ""]) => name));
}

describe("a module, a recipe and a dialect", () => {
  it.each([
    ["Add a module", "DotProductAttention", ["src", "conformance/tests/harness"]],
    [
      "Add a dialect",
      "triton-mxfp8",
      ["src", "conformance/vectors", "conformance/tests/dialects", "scripts/witness"],
    ],
  ])("%s: each file that names the example %s is listed", (title, example, folders) => {
    const word = new RegExp(`(?<![\\w-])${example}(?![\\w-])`);
    // modules and models that compute with another module name it
    const callerPattern = /^src\/(?:modules\/multihead-attention\.ts|models\/)/;
    const files = folders
      .flatMap(listFiles)
      .filter((file) => word.test(textOf(file)) && !callerPattern.test(file));
    expect(files.length).toBeGreaterThan(3);
    expect(files.filter((file) => !listedPaths(title).includes(file))).toEqual([]);
  });

  it("each table of all recipes is listed", () => {
    const recipes = heirsOf("StandardRecipe", "src/recipes");
    expect(recipes).toContain("MXFP8BlockScaling");
    const tables = [
      "src",
      "conformance/tests/harness",
      "conformance/tests/recipes",
      "conformance/tests/laws",
    ].flatMap((folder) => filesNaming(recipes, folder));
    expect(tables).toContain("src/index.ts");
    expect(tables.filter((file) => !listedPaths("Add a recipe").includes(file))).toEqual([]);
  });

  it("each table of all modules is listed", () => {
    const modules = heirsOf("Module", "src/modules");
    expect(modules).toContain("DotProductAttention");
    const tables = ["src", "conformance/tests/harness"].flatMap((folder) => filesNaming(modules, folder));
    expect(tables).toContain("src/index.ts");
    expect(tables.filter((file) => !listedPaths("Add a module").includes(file))).toEqual([]);
  });
});

describe("a chip", () => {
  it("is in each listed file, and the list has every file of src and of the product tests that names all measured devices", () => {
    const devices = CHIPS.flatMap(({ measured }) => measured.map(({ device }) => device));
    const tables = ["src", "conformance/tests/formats", "conformance/tests/gemm"].flatMap((folder) =>
      filesNaming(devices, folder),
    );
    expect(tables).toContain("src/formats/chips.ts");
    expect(listedPaths("Add a chip")).toEqual(expect.arrayContaining(tables));
  });
});

describe("files that are counted", () => {
  const ARCHITECTURE = textOf("docs/architecture.md");

  it.each([
    ["Add a format", "for a scalar format"],
    ["Add a quantizer", "for a quantizer over"],
    ["Add an elementwise operator", "for an elementwise operator"],
    ["Add an operation", "for an operation"],
    ["Add a module", "for a module"],
    ["Add a recipe", "for a recipe"],
    ["Add a dialect", "for a dialect"],
    ["Add a command", "for a command"],
    ["Add a chip", "for a chip"],
  ])("%s: their number is the listed one, in architecture.md too", (title, numberWords) => {
    const count = Number(/^(\d+) files/m.exec(sectionOf(title))?.[1]);
    expect(listedPaths(title)).toHaveLength(count);
    expect(ARCHITECTURE.replaceAll(/\s+/g, " ")).toContain(`${count} ${numberWords}`);
  });

  it.each(["Add an operation", "Add a module"])("%s: the further files that it may need exist", (title) => {
    const rows = optionalPaths(title).filter((path) => !path.includes(GENERIC));
    expect(rows.length).toBeGreaterThan(2);
    expect(rows.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});

describe("the list of generated tables", () => {
  it.each([
    "assembly/index.gen.ts",
    "src/backends/cuda/calls.gen.ts",
    "src/ops/index.gen.ts",
    "conformance/operations/rows.gen.ts",
    "src/backends/wasm/lowerings.gen.ts",
    "src/backends/cuda/lowerings.gen.ts",
  ])("%s is a generated table: it has a line for most operations", (file) => {
    const importedOperations = OPERATIONS.filter((operation) => textOf(file).includes(`/${operation}`));
    expect(importedOperations.length).toBeGreaterThanOrEqual(OPERATIONS.length * 0.7);
  });
});

describe("an export of assembly that is marked @tested", () => {
  it("is called by a test", () => {
    const taggedExports = listFiles("assembly").flatMap((file) =>
      [...textOf(file).matchAll(/@tested \*\/\nexport function (\w+)/g)].map(([, name = ""]) => name),
    );
    expect(taggedExports.length).toBeGreaterThan(3);
    const tests = listFiles("conformance/tests")
      .map(textOf)
      .filter((text) => text.includes("stems.js"));
    const isCalled = (name: string): boolean =>
      tests.some((text) => new RegExp(`call\\.${name}\\b|"${name}"`).test(text));
    expect(taggedExports.filter((name) => !isCalled(name))).toEqual([]);
  });
});
