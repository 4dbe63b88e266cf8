/** Every number in README's prose equals the number in its source; a number without a source fails. */
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { isIntegral, SCALAR_FORMAT_NAMES } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import { ROUNDINGS } from "../../../src/ops/cast/cast.js";
import { ENCODINGS } from "../harness/digests.js";

const ROOT = new URL("../../../", import.meta.url);
const text = (path: string): string => readFileSync(new URL(path, ROOT), "utf8");
const vectors = (name: string) => JSON.parse(text(`conformance/vectors/${name}.json`));

/** README without code, generated tables, addresses and names. The remaining numbers are statements. */
const PROSE = text("README.md")
  .replace(/<!-- forms -->[\s\S]*?<!-- \/forms -->/, "")
  .replace(/```[\s\S]*?```/g, "")
  .replace(/`[^`]*`/g, "")
  .replace(/\]\([^)]*\)/g, "]");

const NUMBER = /(?<![\w.,/^-])\d[\d,.]*(?:\^\d+)?(?![\w/-])|(?<=\()-?1(?= and -1\))|(?<=1 and )-1/g;

const exhaustiveRuns = vectors("exhaustive") as readonly { format: string }[];
const policies = (format: keyof typeof SCALAR_FORMATS): number =>
  isIntegral(SCALAR_FORMATS[format].specials) ? 1 : 2;
const exhaustiveFormats = SCALAR_FORMAT_NAMES.filter(
  (format) =>
    exhaustiveRuns.filter((run) => run.format === format).length === ROUNDINGS.length * policies(format),
);
const quantizations = vectors("te-quantizations");
const withCommas = (n: number): string => n.toLocaleString("en-US");

/**
 * The statements of README, each with the number in its source. Facts about other programs are written here, with their source.
 */
const STATEMENTS: readonly (readonly [says: RegExp, source: () => readonly string[]])[] = [
  [
    /(\d+) handwritten digits/,
    () => [/HELD_BACK = (\d+)/.exec(text("examples/shared/digits.mjs"))?.[1] ?? ""],
  ],
  [
    /a file of (\d+) MB/,
    () => [
      /has (\d+) bytes/.exec(text("conformance/tests/conventions/fetch-model.test.ts"))?.[1]?.slice(0, -6) ??
        "",
    ],
  ],
  // https://www.typescriptlang.org/docs/handbook/release-notes/typescript-5-2.html
  [/TypeScript ([\d.]+) or later/, () => ["5.2"]],
  [/\(Node (\d+) or later\)/, () => [oldestNode()]],
  [/needs Node (\d+) or later/, () => [oldestNode()]],
  // the number is smaller if a format is not compared over all inputs
  [/For all (\d+) formats/, () => [String(exhaustiveFormats.length)]],
  [/\*all\* (2\^\d+)\s+inputs/, () => [`2^${Math.log2(vectors("sweep-digests").inputs)}`]],
  [/digests of all (\d+)\s+encodings/, () => [String(ENCODINGS.length)]],
  [/ran ([\d,]+) quantizations/, () => [withCommas(quantizations.quantizations.length)]],
  [
    /TransformerEngine ([\d.]+)(?=,)/,
    () => [/TransformerEngine ([\d.]+),/.exec(quantizations.origin.version)?.[1] ?? ""],
  ],
  [/, (\d+) of its NVFP4 reference/, () => [withCommas(vectors("te-nvfp4").nvfp4.length)]],
  [/and (\d+)\s+programs/, () => [withCommas(vectors("te-modules").modules.length)]],
  [/also ran (\d+) layers/, () => [withCommas(vectors("te-layers").layers.length)]],
  [/norm\s+is exact \((1) and (-1)\)/, () => ["1", "-1"]],
  [/choice (\d+)\)/, () => [/^(\d+)\. \*\*Comparison\*\*.*NaN/m.exec(text("docs/numerics.md"))?.[1] ?? ""]],
];

function oldestNode(): string {
  return /\d+/.exec(JSON.parse(text("package.json")).engines.node)?.[0] ?? "";
}

it("has the numbers of their sources", () => {
  for (const [says, source] of STATEMENTS) expect(says.exec(PROSE)?.slice(1), String(says)).toEqual(source());
});

it("has no number without a source", () => {
  const remainingProse = STATEMENTS.reduce((prose, [statement]) => prose.replace(statement, ""), PROSE);
  expect(Array.from(remainingProse.matchAll(NUMBER), ([number]) => number)).toEqual([]);
});

it("says that all formats are compared over all inputs, and they are", () => {
  expect(exhaustiveFormats).toEqual(SCALAR_FORMAT_NAMES);
});
