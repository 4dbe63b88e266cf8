/**
 * The documents are correct: examples run and print the promised output, tables equal the tables of the sources, and references
 * resolve.
 */
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { DATAPATH_FAMILIES } from "../../../src/formats/datapath.js";
import { factsOf } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { openBackend } from "../../../src/index.js";
import { decode, encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../src/recipes/block-scaled.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import { checkRecipeSupport } from "../../../src/recipes/support.js";
import type { Role } from "../../../src/recipes/table.js";
import { Scope } from "../../../src/tensor/scope.js";
import { CONSTANTS } from "../../oracle/core/math.js";
import { sampleCases } from "../harness/draws.js";

const run = promisify(execFile);
const ROOT = new URL("../../..", import.meta.url).pathname;
const PLACE = `${ROOT}out/docs`;
const DOCUMENTS = [
  "docs/guide.md",
  "docs/dialects.md",
  "docs/training.md",
  "docs/transformers.md",
  "docs/models.md",
  "docs/experts.md",
  "docs/referee.md",
  "docs/distributed.md",
  "docs/from-transformer-engine.md",
  "README.md",
].filter((path) => existsSync(ROOT + path));

interface Example {
  readonly location: string;
  readonly file: string;
  readonly language: string;
  readonly source: string;
}

/** The ts and js blocks of a document. */
function examplesOf(path: string): Example[] {
  const text = readDocument(path);
  return Array.from(
    text.matchAll(/^```(ts|js)\n(.*?)^```$/gms),
    ({ 1: language = "", 2: source = "", index }) => {
      const line = text.slice(0, index).split("\n").length;
      const file = `${path.replace(/\W/g, "-")}-${line}`;
      return { location: `${path}:${line}`, file, language, source };
    },
  );
}

function readDocument(path: string): string {
  return readFileSync(ROOT + path, "utf8");
}

/** All files below a folder, as paths from the root. */
function filesIn(folder: string): string[] {
  if (!existsSync(ROOT + folder)) return [];
  const entries = readdirSync(ROOT + folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => `${parentPath}/${name}`.slice(ROOT.length));
}

/** The output that an example promises: the comments that start with an arrow. */
function promisedOutput(source: string): string[] {
  return Array.from(source.matchAll(/\/\/ → (.*)$/gm), ([, text = ""]) => text.trim());
}

describe("examples", () => {
  const examples = DOCUMENTS.flatMap(examplesOf);

  beforeAll(async () => {
    if (!existsSync(`${ROOT}dist/src/index.js`)) throw new Error("the package is not built: npm run build");
    rmSync(PLACE, { recursive: true, force: true });
    mkdirSync(PLACE, { recursive: true });
    for (const { file, language, source } of examples) writeFileSync(`${PLACE}/${file}.m${language}`, source);
    // compiles without the browser's types and checks declaration files, to show that the package needs no browser
    // types
    const libraryOptions = {
      lib: ["es2023", "esnext.disposable"],
      skipLibCheck: false,
      // Node's own type declarations have errors under this option
      exactOptionalPropertyTypes: false,
    };
    const compilerOptions = {
      ...libraryOptions,
      rootDir: ".",
      outDir: ".",
      declaration: false,
      sourceMap: false,
    };
    writeFileSync(
      `${PLACE}/tsconfig.json`,
      JSON.stringify({ extends: "../../tsconfig.json", compilerOptions, include: ["*.mts"], exclude: [] }),
    );
    const compiler = `${ROOT}node_modules/typescript-7/bin/tsc`;
    await run(process.execPath, [compiler, "-p", PLACE]).catch(({ stdout }: { stdout: string }) => {
      throw new Error(`an example does not type-check:\n${stdout}`);
    });
  }, 120_000);

  it("are many", () => {
    expect(examples.length).toBeGreaterThan(10);
  });

  it.each(sampleCases(examples, 2))(
    "$location runs and prints the output that the document shows",
    async ({ file, source }) => {
      const { stdout, stderr } = await run(process.execPath, [`${PLACE}/${file}.mjs`], { timeout: 60_000 });
      expect(stderr).not.toContain("garbage collected");
      const expected = promisedOutput(source);
      if (expected.length > 0) expect(stdout.trimEnd().split("\n")).toEqual(expected);
    },
  );
});

describe("docs/numerics.md", () => {
  const text = readDocument("docs/numerics.md");

  /** The words in a fenced block. */
  function block(name: string): string[] {
    const content = new RegExp(`^\`\`\`${name}\\n(.*?)^\`\`\``, "ms").exec(text)?.[1];
    return content?.split(/\s{2,}|\n/).filter((row) => row !== "") ?? [];
  }

  it("has the constants of every function, equal to those of the oracle", () => {
    const rows = block("constants");
    const constants = Object.fromEntries(Object.keys(CONSTANTS).map((name) => [name, [] as string[]]));
    let name = "";
    for (const cell of rows.map((word) => word.trim()))
      if (cell in constants) name = cell;
      else constants[name]?.push(cell);
    expect(constants).toEqual(CONSTANTS);
  });

  it("has every scalar format with its limits", () => {
    const cells = text.split("\n").map((line) => line.split("|").map((cell) => cell.trim()));
    const rows = cells
      .filter(([, name = ""]) => name in SCALAR_FORMATS)
      .map((row) => row.slice(1, -2).join(" "));
    const expected = (Object.keys(SCALAR_FORMATS) as ScalarFormat[]).map((name) => {
      const { exponentBits, mantissaBits, bias, signed, specials } = SCALAR_FORMATS[name];
      const { max, maxCode, minNormal, minPositive, storageBits } = factsOf(name);
      const code = maxCode.toString(16).toUpperCase();
      const power = (x: number) => `2^${Math.log2(x)}`;
      const limits = `${maxNotation(max)} = 0x${code} ${power(minNormal)} ${power(minPositive)} ${storageBits} bits`;
      return `${name} ${Number(signed)}/${exponentBits}/${mantissaBits} ${bias} ${specials} ${limits}`;
    });
    expect(rows).toEqual(expected);
  });

  /** A power of two from 2^53 on, or an odd multiple of one, in the table's notation. */
  function maxNotation(max: number): string {
    if (max < 2 ** 53) return String(max);
    let factor = max;
    let power = 0;
    for (; factor > 2 ** 20 || (factor > 1 && factor % 2 === 0); power++) factor /= 2;
    return factor === 1 ? `2^${power}` : `${factor}·2^${power}`;
  }

  it("prints the codes that the reference gives", async () => {
    const backend = await openBackend("wasm", { threads: 1 });
    const rows = block("encode").map((row) => row.split(" "));
    expect(rows).toHaveLength(22);
    const columnValues = (i: number) => rows.map((row) => Number.parseInt(row[i] ?? "", 16));
    using scope = new Scope();
    const x = tensor(backend, new Float32Array(Uint32Array.from(columnValues(0)).buffer));
    const codes = (
      format: ScalarFormat,
      rounding: "tiesToEven" | "towardPositive",
      overflow: "saturate" | "nonfinite",
    ) => Array.from(encode(x, { format: SCALAR_FORMATS[format], rounding, overflow }).dataSync());
    expect(codes("e4m3", "tiesToEven", "saturate")).toEqual(columnValues(1));
    expect(codes("e5m2", "tiesToEven", "saturate")).toEqual(columnValues(2));
    const nibbles = codes("e2m1", "tiesToEven", "saturate").flatMap((byte) => [byte & 15, byte >> 4]);
    expect(nibbles).toEqual(columnValues(3));
    expect(codes("e8m0", "towardPositive", "saturate")).toEqual(columnValues(4));
    expect(codes("bf16", "tiesToEven", "nonfinite")).toEqual(columnValues(5));

    const pairs = block("decode").map((row) => row.split(" "));
    expect(pairs.length).toBeGreaterThan(4);
    const values = decode(
      tensor(
        backend,
        Uint8Array.from(pairs, ([code = ""]) => Number.parseInt(code, 16)),
        undefined,
        "e8m0",
      ),
    );
    const expected = Float32Array.from(pairs, ([, bits = ""]) => {
      return bits === "NaN"
        ? Number.NaN
        : new Float32Array(Uint32Array.of(Number.parseInt(bits, 16)).buffer)[0]!;
    });
    expect(values.dataSync()).toEqual(expected);
    scope.dispose();
    await backend.dispose();
  });
});

describe("docs/training.md", () => {
  const recipes = Object.entries({
    DelayedScaling,
    Float8CurrentScaling,
    Float8BlockScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
  });
  const rows = rowsOf("docs/training.md");

  it("has every recipe with its element formats", () => {
    const expected = recipes.map(([name, Recipe]) => {
      const recipe = new Recipe();
      const { format, formats } = recipe.row;
      const otherFormats = formats.filter((otherFormat) => otherFormat !== format);
      const tensorOf = (role: Role): string => {
        const { tile, rht, stochastic } = recipe.qparams(role);
        const steps = [...(rht ? ["Hadamard"] : []), ...(stochastic ? ["stochastic"] : [])];
        return [`${recipe.elementFormat(role)} ${tile}`, ...steps].join(", ");
      };
      const roles = (["input", "weight", "gradOutput"] as const).map(tensorOf);
      const split = (["fprop", "dgrad", "wgrad"] as const).filter(
        (product) => recipe[product].useSplitAccumulator,
      );
      return [`\`${name}\``, [format, ...otherFormats].join(", or "), ...roles, split.join(", ")];
    });
    expect(
      rows.filter(({ length, 1: formats = "" }) => length === 6 && /^(HYBRID|E\dM\d)/.test(formats)),
    ).toEqual(expected);
  });

  it("has the support of each recipe by each datapath", async () => {
    const expected = await Promise.all(
      DATAPATH_FAMILIES.map(async (datapath) => {
        const backend = await openBackend("wasm", { threads: 1, datapath });
        const verdicts = recipes.map(([, Recipe]) => {
          const support = checkRecipeSupport(new Recipe(), backend);
          return support.ok ? (support.emulated ? "emulated" : "yes") : "no";
        });
        await backend.dispose();
        return [`\`${datapath}\``, ...verdicts];
      }),
    );
    const familyCells = DATAPATH_FAMILIES.map((datapath) => `\`${datapath}\``);
    expect(
      rows.filter(([name = "", ...otherCells]) => familyCells.includes(name) && otherCells.length === 5),
    ).toEqual(expected);
  });
});

describe("docs/from-transformer-engine.md", () => {
  it("names only identifiers that occur in src", () => {
    const sources = filesIn("src").map(readDocument).join("\n");
    const sourceWords = new Set(sources.match(/\w+/g));
    const threeColumnRows = rowsOf("docs/from-transformer-engine.md").filter(({ length }) => length === 3);
    const names = threeColumnRows.flatMap(([, counterpart = ""]) =>
      Array.from(counterpart.matchAll(/`(\w+)`/g), ([, name]) => name as string),
    );
    expect(names.length).toBeGreaterThan(90);
    expect(names.filter((name) => !sourceWords.has(name))).toEqual([]);
  });
});

/** The cells of all table rows of a document. */
function rowsOf(path: string): string[][] {
  const lines = readDocument(path).split("\n");
  return lines
    .filter((line) => line.startsWith("|"))
    .map((line) =>
      line
        .slice(1, -1)
        .split("|")
        .map((cell) => cell.trim()),
    );
}

const isDocument = (path: string): boolean => path.endsWith(".md");

describe("references", () => {
  const sections = (path: string) =>
    new Set(
      Array.from(readDocument(path).matchAll(/^#+ (\d+(?:\.\d+)*)/gm), ([, number]) => number as string),
    );

  it("from the source lead to sections that exist", () => {
    const sectionsOf = { numerics: sections("docs/numerics.md"), datapath: sections("docs/datapath.md") };
    const folders = ["src", "assembly", "conformance", "kernels", "native", "scripts"];
    const files = folders.flatMap(filesIn).filter((path) => /\.(ts|mjs|py|cc|h|cuh?)$/.test(path));
    expect(files.length).toBeGreaterThan(50);
    const brokenReferences = files.flatMap((path) =>
      Array.from(
        readDocument(path).matchAll(/(numerics|datapath)\.md((?:[^\n]*?§\d+(?:\.\d+)*)+)/g),
        ([, document, sectionList]) => {
          const numbers = Array.from(
            (sectionList ?? "").split(/\w+\.md/)[0]!.matchAll(/§(\d+(?:\.\d+)*)/g),
            ([, number]) => number,
          );
          return numbers
            .filter((number) => !sectionsOf[document as keyof typeof sectionsOf].has(number as string))
            .map((number) => `${path}: ${document}.md §${number}`);
        },
      ).flat(),
    );
    expect(brokenReferences).toEqual([]);
  });

  const linkedDocuments = [
    "README.md",
    "CONTRIBUTING.md",
    "native/README.md",
    "python/README.md",
    ...filesIn("docs").filter(isDocument),
  ];

  /** The file that a link of a document names, as a path from the root. */
  const targetOf = (path: string, target: string): string =>
    target === "" ? path : join(dirname(path), target);

  it("between the documents lead to files that exist", () => {
    const brokenLinks = linkedDocuments.flatMap((path) =>
      Array.from(readDocument(path).matchAll(/\]\((?!http)([^)#]+)/g), ([, target]) => target as string)
        .filter((target) => !existsSync(ROOT + targetOf(path, target)))
        .map((target) => `${path}: ${target}`),
    );
    expect(brokenLinks).toEqual([]);
  });

  it("to headings lead to headings that exist", () => {
    const anchorsOf = (path: string) =>
      Array.from(readDocument(path).matchAll(/^#+ (.*)$/gm), ([, heading = ""]) =>
        heading
          .toLowerCase()
          .replace(/[^\p{L}\p{N} _-]/gu, "")
          .replaceAll(" ", "-"),
      );
    const brokenLinks = linkedDocuments
      .flatMap((path) =>
        Array.from(
          readDocument(path).matchAll(/\]\(([\w./-]+\.md)?#([^)]+)\)/g),
          ([, file = "", anchor = ""]) => ({
            path,
            target: targetOf(path, file),
            anchor,
          }),
        ),
      )
      .filter(({ target, anchor }) => !anchorsOf(target).includes(anchor));
    expect(brokenLinks).toEqual([]);
  });

  it("of docs/README.md name every page", () => {
    const listedPages = Array.from(
      readDocument("docs/README.md").matchAll(/^\| \[([^\]]+\.md)\]\(\1\)/gm),
      ([, page]) => page,
    );
    const pages = filesIn("docs")
      .filter(isDocument)
      .map((path) => path.slice("docs/".length))
      .filter((page) => page !== "README.md");
    expect(listedPages.sort()).toEqual(pages.sort());
  });

  it("show every picture, each of at most 150 kB", () => {
    const shownPictures = ["README.md", ...filesIn("docs").filter(isDocument)].flatMap((path) =>
      Array.from(
        readDocument(path).matchAll(/!\[[^\]]+\]\((?:docs\/)?(pictures\/[^)]+)\)/g),
        ([, target]) => `docs/${target}`,
      ),
    );
    const pictures = filesIn("docs").filter((path) => path.endsWith(".webp"));
    expect([...new Set(shownPictures)].sort()).toEqual(pictures.sort());
    for (const path of pictures) expect(readFileSync(ROOT + path).length, path).toBeLessThanOrEqual(150_000);
  });
});
