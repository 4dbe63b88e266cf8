/** Laws over all names in the public API: one concept has one spelling. */
import { describe, expect, it } from "vitest";
import { FILE_DTYPES } from "../../../src/io/dtypes.js";
import { ENTRIES, publicNames } from "../harness/surface/names.js";

const { exports, members, strings } = publicNames();

/** Groups of synonyms. The API uses the first of each. */
const SYNONYMS: readonly (readonly string[])[] = [
  ["eps", "epsilon"],
  ["pow", "power"],
  ["random", "rng", "rand"],
  ["options", "opts", "config"],
  ["dtype", "datatype"],
  ["len", "length"],
];
const MEANT = new Map(
  SYNONYMS.flatMap(([preferred = "", ...synonyms]) => synonyms.map((word) => [word, preferred])),
);

/** Pairs of names that differ only by such words and mean different things. */
const DIFFERENT: readonly (readonly [string, string])[] = [
  // as in PyTorch, the underscore marks the function that works in place
  ["quantize", "quantize_"],
  // the first is a field of a plan; the second is the option's name in TransformerEngine
  ["splitAccumulator", "useSplitAccumulator"],
  // the first is a dialect, the second how codes lie in the blocks of a GGUF file
  ["gguf-mxfp4", "gguf:mxfp4"],
  ["gguf-nvfp4", "gguf:nvfp4"],
  // the first is a convention of checkpoints, the second a quantizer
  ["block-fp8", "fp8-block"],
  // the first is the configuration of a language model, as Hugging Face names it
  ["config", "options"],
  // the first is an accumulator that a kernel declares, named as datapaths are; the second a kind of explained sum
  ["tensor-core", "tensorCore"],
  // two values
  ["-Infinity", "Infinity"],
];

/**
 * Names of element formats differ only in the order of the same words. TransformerEngine's `Format` and the types of
 * safetensors files are capitalized.
 */
const isFormat = (text: string): boolean => /^e\d+m\d+$/i.test(text) || Object.hasOwn(FILE_DTYPES, text);

/** The words of a name: `usePower2Scales` has the words use, power, 2 and scales. */
function wordsOf(name: string): readonly string[] {
  const spacedName = name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replace(/([A-Z])([A-Z][a-z])/g, "$1 $2");
  return spacedName.toLowerCase().match(/[a-z]+|[0-9]+/g) ?? [];
}

/** A key that is equal for names with the same words or synonyms, in any order and case. */
function meaning(name: string): string {
  return wordsOf(name)
    .filter((word, index) => word !== "use" || index > 0)
    .map((word) => MEANT.get(word) ?? word)
    .sort()
    .join(" ");
}

/** Groups of at least two names that have the same `key`. */
function clashes(names: Iterable<string>, key: (name: string) => string): readonly (readonly string[])[] {
  const groups = new Map<string, Set<string>>();
  for (const name of names) {
    const group = groups.get(key(name)) ?? new Set();
    groups.set(key(name), group.add(name));
  }
  const allowedPairs = new Set(DIFFERENT.map((pair) => [...pair].sort().join(" ")));
  return [...groups.values()]
    .map((group) => [...group].sort())
    .filter((group) => group.length > 1 && !allowedPairs.has(group.join(" ")));
}

/**
 * Types and classes start with a capital, functions and values do not, and tables are all capitals. So a function
 * (`layerNorm`) may have the name of a class (`LayerNorm`) except for the first letter.
 */
const kindOf = (name: string): string =>
  /^[A-Z0-9_]+$/.test(name) && name.includes("_") ? "table" : /^[A-Z]/.test(name) ? "type" : "value";

describe("names of the package", () => {
  it.each(ENTRIES)(
    "no two exports of %s of one kind differ by case, by order of words or by a synonym",
    (entry) => {
      expect(clashes(exports.get(entry) ?? [], (name) => `${kindOf(name)} ${meaning(name)}`)).toEqual([]);
    },
  );

  it("no two members of exported types differ by case, by order of words or by a synonym only", () => {
    expect(members.size).toBeGreaterThan(200);
    expect(clashes(members, (name) => `${kindOf(name)} ${meaning(name)}`)).toEqual([]);
  });

  it("a function, a method and an operation of a backend that do one thing have one name", () => {
    const values = [...exports.values()].flat().filter((name) => kindOf(name) === "value");
    expect(
      clashes(
        [...values, ...members].filter((name) => kindOf(name) === "value"),
        meaning,
      ),
    ).toEqual([]);
  });

  it("no two values that an option accepts differ by spelling only", () => {
    expect(
      clashes(
        [...strings].filter((text) => !isFormat(text)),
        meaning,
      ),
    ).toEqual([]);
  });

  it.each([
    [["SGDOptions", "SgdOptions"]],
    [["eps", "epsilon"]],
    [["usePower2Scales", "pow2Scales"]],
    [["most_recent", "mostRecent"]],
    [["quantizeNorm", "normQuantize"]],
  ])("these rules find the clash in %j", (pair) => {
    expect(clashes(pair, meaning)).toEqual([[...pair].sort()]);
  });
});
