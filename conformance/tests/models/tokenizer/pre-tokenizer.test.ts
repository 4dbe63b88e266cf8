import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../../../../src/errors.js";
import {
  exactPreTokenizer,
  requireNormalizer,
  requirePostProcessor,
} from "../../../../src/models/tokenizer/pre-tokenizer.js";
import { draws } from "../../harness/draws.js";

const MERGED = { type: "Split", pattern: { String: " " }, behavior: "MergedWithPrevious", invert: false };
const REPLACED = { type: "Replace", pattern: { String: " " }, content: "▁" };

describe("exactPreTokenizer", () => {
  it("keeps the pre-tokenizers that the library computes exactly", () => {
    for (const component of [
      { type: "ByteLevel", use_regex: false },
      { type: "ByteLevel", add_prefix_space: true },
      { type: "Metaspace", split: false },
      { type: "Split", pattern: { Regex: "x" }, behavior: "Removed", invert: true },
    ])
      expect(exactPreTokenizer(component, null)).toEqual(component);
    expect(exactPreTokenizer(null, null)).toBeNull();
  });

  it("accepts a split that merges with its neighbour only if a normalizer replaces all that it could find", () => {
    expect(() => exactPreTokenizer(MERGED, null)).toThrow(
      /Split with the behavior MergedWithPrevious is not/,
    );
    expect(() => exactPreTokenizer(MERGED, { ...REPLACED, content: "  " })).toThrow(UnsupportedError);
    expect(() => exactPreTokenizer(MERGED, { ...REPLACED, pattern: { String: "x" } })).toThrow(
      UnsupportedError,
    );
    for (const normalizer of [REPLACED, { type: "Sequence", normalizers: [{ type: "NFC" }, REPLACED] }])
      expect(exactPreTokenizer(MERGED, normalizer)).toMatchObject({ behavior: "Isolated" });
  });

  it("accepts such a split only if normalized texts never have its string, whatever the normalizers are", () => {
    const word = (minLength: number) =>
      fc.array(fc.constantFrom("a", "b"), { minLength, maxLength: 3 }).map((letters) => letters.join(""));
    const replacements = fc.array(fc.record({ text: word(1), content: word(0) }), {
      minLength: 1,
      maxLength: 3,
    });
    const texts = fc.array(word(0), { maxLength: 4 }).map((words) => words.join(""));
    fc.assert(
      fc.property(word(1), replacements, fc.boolean(), texts, (split, list, isNested, text) => {
        const parts = list.map(({ text, content }) => ({
          type: "Replace",
          pattern: { String: text },
          content,
        }));
        const sequence = { type: "Sequence", normalizers: parts };
        const normalizer = isNested
          ? { type: "Sequence", normalizers: [{ type: "NFC" }, sequence] }
          : sequence;
        try {
          exactPreTokenizer({ ...MERGED, pattern: { String: split } }, normalizer);
        } catch (error) {
          expect(error).toBeInstanceOf(UnsupportedError);
          return;
        }
        const normalized = list.reduce((each, { text, content }) => each.replaceAll(text, content), text);
        expect(normalized).not.toContain(split);
      }),
      {
        numRuns: draws(3000, 500),
        examples: [
          [
            "a",
            [
              { text: "a", content: "b" },
              { text: "b", content: "a" },
            ],
            false,
            "a",
          ],
          ["ab", [{ text: "ab", content: "" }], false, "aabb"],
        ],
      },
    );
  });

  it.each([
    [{ type: "Metaspace" }, "Metaspace that splits at spaces"],
    [{ type: "BertPreTokenizer" }, "the pre-tokenizer BertPreTokenizer"],
    [{ type: "Sequence", pretokenizers: [{ type: "UnicodeScripts" }] }, "the pre-tokenizer UnicodeScripts"],
    ["ByteLevel", "the pre-tokenizer undefined"],
  ])("refuses %j", (component, message) => {
    expect(() => exactPreTokenizer(component, null)).toThrow(`${message} is not supported`);
  });
});

it("normalizers and post-processors of other kinds are refused by name, also in a sequence", () => {
  for (const normalizer of [null, { type: "NFC" }, { type: "Sequence", normalizers: [REPLACED] }])
    expect(() => requireNormalizer(normalizer)).not.toThrow();
  expect(() => requireNormalizer({ type: "BertNormalizer" })).toThrow(
    /normalizer BertNormalizer; there are NFC/,
  );
  const nestedNormalizers = { type: "Sequence", normalizers: [{ type: "Precompiled" }] };
  expect(() => requireNormalizer(nestedNormalizers)).toThrow(/normalizer Precompiled/);
  expect(() => requirePostProcessor({ type: "Sequence", processors: [{ type: "ByteLevel" }] })).not.toThrow();
  expect(() => requirePostProcessor({ type: "BertProcessing" })).toThrow(/post-processor BertProcessing/);
});

it("normalizers whose replacements could exhaust memory are refused", () => {
  const doubling = { type: "Replace", pattern: { String: "a" }, content: "aa" };
  const sequence = (sequenceOf: readonly object[]) => ({ type: "Sequence", normalizers: sequenceOf });
  expect(() => requireNormalizer(sequence(new Array(10).fill(doubling)))).not.toThrow();
  for (const processor of [
    sequence(new Array(11).fill(doubling)),
    sequence(new Array(2).fill(sequence(new Array(6).fill(doubling)))),
    { type: "Replace", pattern: { String: "" }, content: "x".repeat(1024) },
    { type: "Replace", pattern: { Regex: "" }, content: "x".repeat(1024) },
  ])
    expect(() => requireNormalizer(processor)).toThrow(
      /can lengthen a text more than 1024 times is not supported/,
    );
});

it("a template of a post-processor has tokens and the text, also in a sequence", () => {
  const template = (single: unknown) => ({ type: "TemplateProcessing", single });
  const text = { Sequence: { id: "A", type_id: 0 } };
  const valid = template([{ SpecialToken: { id: "<s>", type_id: 0 } }, text]);
  expect(() => requirePostProcessor({ type: "Sequence", processors: [valid] })).not.toThrow();
  const components = [
    null,
    {},
    "A",
    { SpecialToken: null },
    { SpecialToken: { id: 1 } },
    { Sequence: { id: "B" } },
  ];
  for (const single of [undefined, 5, ...components.map((component) => [text, component])])
    for (const processor of [template(single), { type: "Sequence", processors: [template(single)] }])
      expect(() => requirePostProcessor(processor)).toThrow(/TemplateProcessing without a list of tokens/);
});
