/**
 * The folder layout: paths have the form layer/family/operation, every operation has its files in every layer, and every test
 * file has the name of the source that it tests.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { GPU_GROUPS, GPU_OPERATIONS } from "../harness/gpu/groups.js";
import { findCycle, listFiles, ROOT, readImports } from "../harness/sources/sources.js";

const BACKENDS = ["wasm", "cuda"] as const;

interface Layer {
  readonly folder: string;
  readonly extension: string;
  /** The folders of this layer that are not families, and a description of the files that they may contain. */
  readonly extraFolders?: Readonly<Record<string, string>>;
  /** The operations that have no file in this layer, and where their code is instead. */
  readonly exceptions?: Readonly<Record<string, string>>;
  /** Whether a generated file takes the place of an operation's file. */
  readonly isGenerated?: (operation: string) => boolean;
}

const COMPOSED = {
  "quantize/activation-quantize": "the reference composes it: src/backends/steps/activation.ts",
  "quantize/bias-grad-quantize": "the reference composes it: src/backends/steps/bias-grad.ts",
  "quantize/norm-quantize": "the reference composes it: src/backends/steps/norm.ts",
};

/** The calls of the addon with a generated binding, each with a capital. */
const BOUND = new Set(
  Array.from(
    readFileSync(join(ROOT, "native/calls.gen.cc"), "utf8").matchAll(/expose<run(\w+)>/g),
    ([, name = ""]) => name,
  ),
);

/** Whether all calls of the addon that an operation's lowering makes have a generated binding. */
function isBound(operation: string): boolean {
  const files = listFiles("src/backends/cuda").filter((file) =>
    file.startsWith(`src/backends/cuda/${operation}.`),
  );
  const text = files.map((file) => readFileSync(join(ROOT, file), "utf8")).join("\n");
  const calls = [...text.matchAll(/addon\.(\w)(\w+)\(/g)];
  return calls.every(([, initial = "", otherLetters = ""]) =>
    BOUND.has(initial.toUpperCase() + otherLetters),
  );
}

const LAYERS: readonly Layer[] = [
  { folder: "src/ops", extension: ".ts" },
  { folder: "src/backends/wasm", extension: ".ts" },
  {
    folder: "src/backends/cuda",
    extension: ".ts",
    extraFolders: { collective: "what ranks exchange by NCCL: src/backends/exchange.ts" },
  },
  {
    folder: "assembly",
    extension: ".ts",
    extraFolders: {
      checkpoints: "stored weights, which the command line calls by itself: src/checkpoints/kernels",
      core: "arithmetic and memory that families share",
    },
    exceptions: COMPOSED,
  },
  {
    folder: "kernels",
    extension: ".cu",
    extraFolders: {
      core: "arithmetic, in the words of assembly/core",
      device: "how a GPU reads, reduces and launches",
      collective: "what the parts of several ranks combine to",
    },
  },
  {
    folder: "native",
    extension: ".cc",
    isGenerated: isBound,
    extraFolders: { core: "calls, memory and streams of the addon", collective: "communicators of NCCL" },
  },
  {
    folder: "conformance/operations",
    extension: ".ts",
    exceptions: {
      "cast/sweep": "digests of all inputs, not drawn ones: conformance/tests/cast/sweep.test.ts",
    },
  },
  {
    folder: "conformance/oracle",
    extension: ".ts",
    extraFolders: {
      core: "exact arithmetic that families share",
      collective: "operations of a group of ranks, which no backend has: src/collectives",
      training: "a training step in plain arithmetic",
    },
    exceptions: {
      "cast/cast": "every oracle rounds by it: core/scalar.ts",
      "cast/sweep": "every oracle rounds by it: core/scalar.ts",
      "elementwise/special-function": "core/special-instructions.ts",
      "quantize/activation-quantize": "computed.ts",
      "quantize/bias-grad-quantize": "quantize.ts, and rows/norm.ts for the sums",
      "quantize/norm-quantize": "computed.ts",
    },
  },
];

const foldersIn = (folder: string): string[] =>
  readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? [entry.name] : [],
  );

/** The operations of a backend: the families' files that its table of lowerings imports. */
const loweringsOf = (backend: string): string[] =>
  [
    ...new Set(
      readImports(`src/backends/${backend}/lowerings.gen.ts`).map((path) =>
        path.slice(`src/backends/${backend}/`.length).replace(/(\.gen)?\.ts$/, ""),
      ),
    ),
  ]
    .filter((path) => path.includes("/"))
    .sort();

const FAMILIES = foldersIn("src/ops").sort();
const OPERATIONS = loweringsOf("wasm");

/**
 * Whether an operation has a file in a layer, which may be generated, or a folder of its name that contains such a file. An
 * operation with the name of its family uses the family's folder.
 */
function hasFile({ folder, extension }: Layer, operation: string): boolean {
  const files = listFiles(folder);
  const [family, stem] = operation.split("/");
  if (family === stem)
    return files.some((file) => file.startsWith(`${folder}/${family}/`) && file.endsWith(extension));
  return [operation, `${operation}/${stem}`, `${operation}.gen`].some((path) =>
    files.includes(`${folder}/${path}${extension}`),
  );
}

describe("operations", () => {
  it("are the same on both backends, and each is in a family's folder", () => {
    expect(OPERATIONS.length).toBeGreaterThan(15);
    for (const backend of BACKENDS) expect(loweringsOf(backend)).toEqual(OPERATIONS);
    expect([...new Set(OPERATIONS.map(dirname))].sort()).toEqual(FAMILIES);
  });

  it("have names that no other family uses", () => {
    const stems = OPERATIONS.map((path) => path.slice(path.indexOf("/") + 1));
    expect(new Set(stems).size).toBe(stems.length);
  });

  it.each(OPERATIONS)("%s has tests, or a row that laws/operations.test.ts tests", (operation) => {
    const files = [`conformance/tests/${operation}.test.ts`, `conformance/operations/${operation}.ts`];
    expect(files.filter((file) => existsSync(join(ROOT, file)))).not.toEqual([]);
  });
});

describe.each(LAYERS)("$folder", (layer) => {
  const { folder, extraFolders = {}, exceptions = {}, isGenerated = () => false } = layer;

  it("has a file for every operation", () => {
    const operationsWithoutFile = OPERATIONS.filter(
      (operation) => !hasFile(layer, operation) && !isGenerated(operation),
    );
    expect(operationsWithoutFile).toEqual(Object.keys(exceptions).sort());
  });

  it("has a folder for each family of src/ops, and the further ones that are listed", () => {
    const extraNames = Object.keys(extraFolders);
    expect(
      foldersIn(folder).filter((name) => !FAMILIES.includes(name) && !extraNames.includes(name)),
    ).toEqual([]);
    expect(foldersIn(folder)).toEqual(expect.arrayContaining(Object.keys(extraFolders)));
  });
});

describe("sources that dependency-cruiser does not read", () => {
  it.each([
    ["assembly/core/", ["assembly/core/", "assembly/contract.ts"]],
    ["kernels/core/", ["kernels/core/"]],
    ["kernels/device/", ["kernels/core/", "kernels/device/"]],
    ["kernels/", ["kernels/"]],
    [
      "native/core/",
      ["kernels/core/", "kernels/device/", "native/core/", "native/addon.h", "native/gemm/plan.h"],
    ],
    ["native/", ["kernels/", "native/"]],
  ])("of %s import nothing from outside of %j", (folder, allowedPrefixes) => {
    const files = listFiles(folder.split("/")[0] ?? "").filter((file) => file.startsWith(folder));
    expect(files).not.toEqual([]);
    const forbiddenImports = files.flatMap((file) =>
      readImports(file).flatMap((path) =>
        allowedPrefixes.some((prefix) => path.startsWith(prefix)) ? [] : [`${file} takes ${path}`],
      ),
    );
    expect(forbiddenImports).toEqual([]);
  });

  it.each(["assembly", "kernels", "native"])("have no circular import in %s", (folder) => {
    expect(findCycle(listFiles(folder).filter((file) => /\.(ts|cuh?|cc|h)$/.test(file)))).toEqual([]);
  });
});

/** Whether a file has fewer than 30 lines. */
function isShort(file: string): boolean {
  return readFileSync(join(ROOT, file), "utf8").split("\n").length <= 30;
}

describe("a short source", () => {
  /** Files of one row of a table each, which a list or a generated file imports. */
  const ROWS = /^src\/(cli\/commands|backends\/\w+)\//;

  it("has more than one importer: a file below 30 lines that one other file needs is a part of that file", () => {
    const sources = listFiles("src").filter((file) => /(?<!\.gen)\.ts$/.test(file));
    const importers = new Map<string, string[]>();
    for (const file of sources)
      for (const target of new Set(readImports(file)))
        importers.set(target, [...(importers.get(target) ?? []), file]);
    const filesWithOneImporter = sources.filter((file) => {
      if (ROWS.test(file) || !isShort(file)) return false;
      const [importer, ...otherImporters] = importers.get(file) ?? [];
      return importer !== undefined && otherImporters.length === 0 && !/(\.gen|\/index)\.ts$/.test(importer);
    });
    expect(filesWithOneImporter).toEqual([]);
  });
});

describe("a test file", () => {
  /** The folders whose files have names of their own. Those of laws/ say what holds for several sources. */
  const GROUPS = [
    "addon",
    "browser",
    "conventions",
    "cuda",
    "laws",
    "nccl",
    "oracle",
    "package",
    "slow",
    "te",
    "witness",
  ];
  const ROOTS = ["src/", "src/ops/", "assembly/"];

  const sources = ["src", "assembly", "playground/src"].flatMap(listFiles);
  const stems = new Set(sources.map((file) => file.replace(/\.tsx?$/, "")));
  const isFolder = (path: string): boolean => sources.some((file) => file.startsWith(`${path}/`));

  /** Where the source of a test may be. */
  const candidates = (path: string): string[] =>
    path.startsWith("playground/")
      ? [path.replace("playground/", "playground/src/")]
      : ROOTS.map((root) => root + path);

  /** Whether a path below conformance/tests, without its ending, names a source, a folder or an aspect of a source. */
  const hasSource = (path: string): boolean =>
    candidates(path).some((candidate) => stems.has(candidate) || isFolder(candidate)) ||
    candidates(dirname(path)).some((folder) => stems.has(folder));

  it("has the name of a source or of a folder of sources, is in a folder with the name of a source, or is in laws/", () => {
    const paths = listFiles("conformance/tests")
      .filter((file) => file.endsWith(".test.ts"))
      .map((file) => file.slice("conformance/tests/".length, -".test.ts".length));
    const mirroredPaths = paths.filter((path) => !GROUPS.includes(path.split("/")[0] ?? ""));
    expect(mirroredPaths.length).toBeGreaterThan(200);
    expect(mirroredPaths.filter((path) => !hasSource(path))).toEqual([]);
  });

  it.each([
    ["tape/backward", true],
    ["rows/softmax", true],
    ["core/math", true],
    ["io/sharded", true],
    ["quantizers/quantizer/random-bits", true],
    ["playground/data/stored", true],
    ["modules/asked", false],
    ["modules/linear/forward/fast/path", false],
    ["training/model", false],
    ["backwards", false],
  ])("may be %s: %s", (path, isAllowed) => {
    expect(hasSource(path)).toBe(isAllowed);
  });
});

describe("a GPU", () => {
  it("is tested by every operation's laws, by a file for each group", () => {
    expect(Object.values(GPU_GROUPS).flat().sort()).toEqual([...GPU_OPERATIONS].sort());
    const files = readdirSync(join(ROOT, "conformance/tests/cuda/laws"));
    expect(files.sort()).toEqual(
      Object.keys(GPU_GROUPS)
        .map((group) => `${group}.test.ts`)
        .sort(),
    );
  });

  it("is opened only by the tests of these groups", () => {
    for (const group of Object.keys(GPU_GROUPS))
      expect(readFileSync(join(ROOT, `conformance/tests/cuda/laws/${group}.test.ts`), "utf8")).toContain(
        `describeLawsOnGpu("${group}")`,
      );
  });
});
