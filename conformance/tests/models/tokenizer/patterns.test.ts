import { Tokenizer } from "@huggingface/tokenizers";
import { describe, expect, it } from "vitest";
import { PATTERN_ROWS, patternRow, splitBy } from "../../../../src/models/tokenizer/patterns.js";
import { RECORDED } from "./recorded.js";

it("every row was recorded, and every name leads to one row", () => {
  expect(PATTERN_ROWS.map(({ names: [firstName] }) => firstName).sort()).toEqual(
    Object.keys(RECORDED.pieces).sort(),
  );
  const names = PATTERN_ROWS.flatMap(({ names }) => names);
  expect(new Set(names).size).toBe(names.length);
  for (const name of names) expect(patternRow(name)?.names).toContain(name);
  expect(patternRow("another")).toBeUndefined();
});

/** Splits texts as the library does by these patterns. */
function splitterOf(patterns: readonly string[]): (text: string) => readonly string[] {
  const { pre_tokenizer: split } = new Tokenizer(
    {
      model: { type: "BPE", vocab: {}, merges: [] },
      pre_tokenizer: { type: "Sequence", pretokenizers: patterns.map(splitBy) },
      ...{ decoder: null, normalizer: null, post_processor: null, added_tokens: [] },
    },
    {},
  ) as { readonly pre_tokenizer: { pre_tokenize(texts: readonly string[], options: object): string[] } };
  return (text) => (text === "" ? [] : split.pre_tokenize([text], {}));
}

describe("each pattern splits texts as the tokenizers library does", () => {
  it.each(Object.entries(RECORDED.pieces))("%s", (name, recordedLengths) => {
    const split = splitterOf(patternRow(name)?.patterns ?? []);
    for (const [i, text] of RECORDED.texts.entries()) {
      const pieces = split(text);
      expect(pieces.map((piece) => Array.from(piece).length)).toEqual(recordedLengths[i]);
      expect(pieces.join("")).toBe(text);
    }
  });
});
