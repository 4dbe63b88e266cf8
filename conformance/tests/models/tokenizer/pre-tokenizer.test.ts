import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../../../../src/errors.js";
import {
  exactPreTokenizer,
  requireNormalizer,
  requirePostProcessor,
} from "../../../../src/models/tokenizer/pre-tokenizer.js";

const MERGED = { type: "Split", pattern: { String: " " }, behavior: "MergedWithPrevious", invert: false };
const REPLACED = { type: "Replace", pattern: { String: " " }, content: "▁" };

describe("exactPreTokenizer", () => {
  it("keeps what the library computes right", () => {
    for (const kept of [
      { type: "ByteLevel", use_regex: false },
      { type: "ByteLevel", add_prefix_space: true },
      { type: "Metaspace", split: false },
      { type: "Split", pattern: { Regex: "x" }, behavior: "Removed", invert: true },
    ])
      expect(exactPreTokenizer(kept, null)).toEqual(kept);
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

  it.each([
    [{ type: "Metaspace" }, "Metaspace that splits at spaces"],
    [{ type: "BertPreTokenizer" }, "the pre-tokenizer BertPreTokenizer"],
    [{ type: "Sequence", pretokenizers: [{ type: "UnicodeScripts" }] }, "the pre-tokenizer UnicodeScripts"],
    ["ByteLevel", "the pre-tokenizer undefined"],
  ])("refuses %j", (given, what) => {
    expect(() => exactPreTokenizer(given, null)).toThrow(`${what} is not supported`);
  });
});

it("normalizers and post-processors of other kinds are refused by name, also in a sequence", () => {
  for (const given of [null, { type: "NFC" }, { type: "Sequence", normalizers: [REPLACED] }])
    expect(() => requireNormalizer(given)).not.toThrow();
  expect(() => requireNormalizer({ type: "BertNormalizer" })).toThrow(
    /normalizer BertNormalizer; there are NFC/,
  );
  const nested = { type: "Sequence", normalizers: [{ type: "Precompiled" }] };
  expect(() => requireNormalizer(nested)).toThrow(/normalizer Precompiled/);
  expect(() => requirePostProcessor({ type: "Sequence", processors: [{ type: "ByteLevel" }] })).not.toThrow();
  expect(() => requirePostProcessor({ type: "BertProcessing" })).toThrow(/post-processor BertProcessing/);
});

it("normalizers whose replacements could exhaust memory are refused", () => {
  const double = { type: "Replace", pattern: { String: "a" }, content: "aa" };
  const sequence = (parts: readonly object[]) => ({ type: "Sequence", normalizers: parts });
  expect(() => requireNormalizer(sequence(new Array(10).fill(double)))).not.toThrow();
  for (const given of [
    sequence(new Array(11).fill(double)),
    sequence(new Array(2).fill(sequence(new Array(6).fill(double)))),
    { type: "Replace", pattern: { String: "" }, content: "x".repeat(1024) },
    { type: "Replace", pattern: { Regex: "" }, content: "x".repeat(1024) },
  ])
    expect(() => requireNormalizer(given)).toThrow(
      /can lengthen a text more than 1024 times is not supported/,
    );
});

it("a template of a post-processor has tokens and the text, also in a sequence", () => {
  const template = (single: unknown) => ({ type: "TemplateProcessing", single });
  const text = { Sequence: { id: "A", type_id: 0 } };
  const valid = template([{ SpecialToken: { id: "<s>", type_id: 0 } }, text]);
  expect(() => requirePostProcessor({ type: "Sequence", processors: [valid] })).not.toThrow();
  const parts = [
    null,
    {},
    "A",
    { SpecialToken: null },
    { SpecialToken: { id: 1 } },
    { Sequence: { id: "B" } },
  ];
  for (const single of [undefined, 5, ...parts.map((part) => [text, part])])
    for (const given of [template(single), { type: "Sequence", processors: [template(single)] }])
      expect(() => requirePostProcessor(given)).toThrow(/TemplateProcessing without a list of tokens/);
});
