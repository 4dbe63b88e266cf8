/** Tokenizers of tokenizer.json return the tokens and texts of the Rust library, and refuse unsupported features. */
import { build } from "esbuild";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, FileError } from "../../../../src/errors.js";
import { hubDefinition } from "../../../../src/models/tokenizer/hub.js";
import { Tokenizer } from "../../../../src/models/tokenizer/tokenizer.js";
import { draws } from "../../harness/draws.js";
import { ALPHABET, metadataOf, tokenizerOf } from "./drawn.js";
import { RECORDED } from "./recorded.js";

describe.each(RECORDED.small)("the recorded tokenizer $name", ({ tokenizer: json, encodings }) => {
  const tokenizer = Tokenizer.of(hubDefinition("recorded", { tokenizer: json }));

  it("gives the recorded tokens", () => {
    for (const [i, text] of RECORDED.texts.entries())
      expect([...tokenizer.encode(text)]).toEqual(encodings[i]?.ids);
  });

  it("gives the recorded texts, at once and as a stream", () => {
    for (const [i, { ids, decoded: decodedText }] of encodings.entries()) {
      const expected = decodedText ?? RECORDED.texts[i];
      expect(tokenizer.decode(ids)).toBe(expected);
      const stream = tokenizer.decodeStream();
      expect(ids.map((id) => stream.step(id)).join("") + stream.end()).toBe(expected);
    }
  });
});

describe("encode", () => {
  it("adds special tokens, except with addSpecialTokens: false", async () => {
    const tokenizer = await tokenizerOf(metadataOf([], "llama-bpe"));
    expect([...tokenizer.encode("a")]).toEqual([256, 97]);
    expect([...tokenizer.encode("a", { addSpecialTokens: false })]).toEqual([97]);
    expect([...tokenizer.encode("")]).toEqual([256]);
  });

  it("refuses a lone surrogate, and a character for which the vocabulary has no token, by its number", async () => {
    const tokenizer = await tokenizerOf(metadataOf([], "gpt-2"));
    expect(() => tokenizer.encode("a\ud800b")).toThrow(/encode: text has a lone surrogate/);
    const { "tokenizer.ggml.tokens": tokens, ...otherMetadata } = metadataOf([], "gpt-2");
    const otherTokens = (tokens as readonly string[]).map((token) =>
      token === ALPHABET[0xf1] ? "<gone>" : token,
    );
    const partial = await tokenizerOf({ ...otherMetadata, "tokenizer.ggml.tokens": otherTokens });
    expect(partial.decode(partial.encode("ab😀"))).toBe("ab😀");
    expect(() => partial.encode("ab\u{70000}😀")).toThrow(ArgumentError);
    expect(() => partial.encode("ab\u{70000}😀")).toThrow(
      /drawn.gguf has no token for U\+70000; leave it out/,
    );
  });
});

describe("decode", () => {
  it("takes lists and Int32Arrays, omits special tokens with skipSpecialTokens, and refuses numbers that are not ids", async () => {
    const tokenizer = await tokenizerOf(metadataOf([], "gpt-2"));
    expect(tokenizer.decode([256, 97, 257])).toBe("<|begin|>a<|end|>");
    expect(tokenizer.decode(Int32Array.of(256, 97, 257), { skipSpecialTokens: true })).toBe("a");
    expect(tokenizer.decode([])).toBe("");
    expect(tokenizer.vocabularySize).toBe(258);
    for (const id of [2 ** 31, -1, 0.5, Number.NaN])
      expect(() => tokenizer.decode([97, id])).toThrow(
        /an id is .*; it must be a whole number from 0 to 2147483647/,
      );
  });

  it("gives no text for ids without a token, anywhere in a text", async () => {
    const tokenizer = await tokenizerOf(metadataOf([], "gpt-2"));
    const ids = fc.array(
      fc.oneof(fc.integer({ min: 0, max: 257 }), fc.integer({ min: 258, max: 2 ** 31 - 1 })),
    );
    fc.assert(
      fc.property(ids, (allIds) => {
        const stream = tokenizer.decodeStream();
        const text = tokenizer.decode(allIds.filter((id) => id < 258));
        expect(tokenizer.decode(allIds)).toBe(text);
        expect(allIds.map((id) => stream.step(id)).join("") + stream.end()).toBe(text);
      }),
      { numRuns: draws(1000, 100) },
    );
  });
});

it("an invalid vocabulary, and an end that is not a token, are refused", () => {
  const model = { type: "BPE", vocab: { a: 0 }, merges: [] };
  const tokenizer = { model, decoder: { type: "ByteLevel" } };
  const open =
    (change: object, config = {}) =>
    () =>
      Tokenizer.of(hubDefinition("x", { tokenizer: { ...tokenizer, ...change }, config }));
  expect(open({})).not.toThrow();
  expect(open({ model: { ...model, vocab: { a: -1 } } })).toThrow(
    /whole number below 16777216 for each token/,
  );
  expect(open({ model: { ...model, vocab: { a: "1" } } })).toThrow(FileError);
  expect(open({ model: { ...model, merges: "a b" } })).toThrow(/no list of merges/);
  expect(open({ model: { ...model, type: "Unigram" } })).toThrow(
    /model of the type Unigram is not supported/,
  );
  expect(open({ model: { ...model, vocab: { a: 2 ** 31 - 1 } } })).toThrow(/whole number below 16777216/);
  for (const ids of [
    null,
    {},
    { id: 1 },
    { content: "b" },
    { id: "1", content: "b" },
    { id: 2 ** 24, content: "b" },
  ])
    expect(open({ added_tokens: [{ id: 1, content: "b" }, ids] })).toThrow(/added_tokens\[1\] must have/);
  expect(open({}, { eos_token_id: 7 })).toThrow(/the token 7, which begins or ends texts/);
});

it("a bundle for a browser encodes and decodes", async () => {
  const url = (path: string): string => new URL(`../../../../${path}`, import.meta.url).pathname;
  const { outputFiles } = await build({
    stdin: {
      contents: `export { Tokenizer } from "${url("src/models/tokenizer/tokenizer.ts")}";
        export { hubDefinition } from "${url("src/models/tokenizer/hub.ts")}";`,
      resolveDir: url("."),
      loader: "ts",
    },
    bundle: true,
    platform: "browser",
    format: "esm",
    target: "es2022",
    write: false,
  });
  const code = outputFiles[0]?.text ?? "";
  expect(code).not.toMatch(/\bfrom\s*"node:|require\(/);
  const module = (await import(`data:text/javascript,${encodeURIComponent(code)}`)) as {
    readonly Tokenizer: typeof Tokenizer;
    readonly hubDefinition: typeof hubDefinition;
  };
  const [small] = RECORDED.small;
  const tokenizer = module.Tokenizer.of(module.hubDefinition("x", { tokenizer: small?.tokenizer ?? {} }));
  for (const i of [2, 3, 8])
    expect([...tokenizer.encode(RECORDED.texts[i] ?? "")]).toEqual(small?.encodings[i]?.ids);
});
