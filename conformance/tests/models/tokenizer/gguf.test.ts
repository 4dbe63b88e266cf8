import { describe, expect, it } from "vitest";
import { FileError, UnsupportedError } from "../../../../src/errors.js";
import { type Metadata, metadataOf, tokenizerOf } from "./drawn.js";

const METADATA = metadataOf([[97, 98]], "smollm");
const key = (name: string): string => `tokenizer.ggml.${name}`;
const metadataWith = (changes: Readonly<Record<string, Metadata[string] | undefined>>): Metadata =>
  Object.fromEntries(
    Object.entries({ ...METADATA, ...changes }).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, value] as const],
    ),
  );

describe("the tokenizer of a GGUF file", () => {
  it("has merges, special tokens, and tokens that begin and end texts", async () => {
    const tokenizer = await tokenizerOf(METADATA);
    expect([...tokenizer.encode("abc<|end|>a")]).toEqual([256, 99, 258, 97]);
    expect([tokenizer.bosTokenId, tokenizer.eosTokenIds]).toEqual([257, [258]]);
    expect(tokenizer.chatTemplates).toEqual([]);
  });

  it("finds tokens that users defined in texts, which are not special", async () => {
    const types = (METADATA[key("token_type")] as readonly number[]).map((type) => (type === 3 ? 4 : type));
    const tokenizer = await tokenizerOf(metadataWith({ [key("token_type")]: types }));
    expect([...tokenizer.encode("a<|end|>")]).toEqual([97, 258]);
    expect(tokenizer.decode([97, 258], { skipSpecialTokens: true })).toBe("a<|end|>");
  });

  it("gives tokens that pad the vocabulary no text", async () => {
    const tokens = [...(METADATA[key("tokens")] as readonly string[]), "[PAD259]", "[PAD260]"];
    const types = [...(METADATA[key("token_type")] as readonly number[]), 5, 1];
    const tokenizer = await tokenizerOf(
      metadataWith({ [key("tokens")]: tokens, [key("token_type")]: types }),
    );
    expect(tokenizer.decode([97, 259, 98, 260])).toBe("ab[PAD260]");
    expect(tokenizer.vocabularySize).toBe(261);
  });

  it("adds the token of the beginning as the metadata say, else as the pre-tokenizer implies", async () => {
    const encode = async (changes: Metadata) => [...(await tokenizerOf(metadataWith(changes))).encode("c")];
    expect(await encode({})).toEqual([99]);
    expect(await encode({ [key("add_bos_token")]: true, [key("add_eos_token")]: true })).toEqual([
      257, 99, 258,
    ]);
    expect(await encode({ [key("pre")]: "llama-bpe" })).toEqual([257, 99]);
    expect(await encode({ [key("pre")]: "llama-bpe", [key("add_bos_token")]: false })).toEqual([99]);
  });

  it("ignores merges where its pre-tokenizer does", async () => {
    const tokens = [...(METADATA[key("tokens")] as readonly string[]), "xyz"];
    const types = [...(METADATA[key("token_type")] as readonly number[]), 1];
    const lists = { [key("tokens")]: tokens, [key("token_type")]: types };
    expect([...(await tokenizerOf(metadataWith(lists))).encode("xyz")]).toEqual([120, 121, 122]);
    const llama = metadataWith({ ...lists, [key("pre")]: "llama-bpe", [key("add_bos_token")]: false });
    expect([...(await tokenizerOf(llama)).encode("xyz")]).toEqual([259]);
  });

  it.each([
    [{}, [258]],
    [{ eot_token_id: 3 }, [258, 3]],
    [{ eom_token_id: 4 }, [258, 4]],
    [{ eot_token_id: 3, eom_token_id: 4 }, [258, 3, 4]],
    [{ eos_token_id: 5, eot_token_id: 3, eom_token_id: 258 }, [5, 3, 258]],
    [{ eos_token_id: undefined, eot_token_id: 3, eom_token_id: 4 }, [3, 4]],
    [{ eot_token_id: 258, eom_token_id: 258 }, [258]],
  ] as const)("ends a generation at every token that the metadata name: %j", async (names, expected) => {
    const changes = Object.fromEntries(Object.entries(names).map(([name, id]) => [key(name), id]));
    const tokenizer = await tokenizerOf(metadataWith(changes));
    expect(tokenizer.eosTokenIds.toSorted()).toEqual([...expected].toSorted());
  });

  it("has the default pre-tokenizer if its metadata name none", async () => {
    const tokenizer = await tokenizerOf(metadataWith({ [key("pre")]: undefined }));
    expect([...tokenizer.encode("ab")]).toEqual([256]);
  });

  it("has a chat template", async () => {
    const template = "{{ bos_token }}{% for m in messages %}{{ m.role }}{% endfor %}{{ eos_token }}";
    const tokenizer = await tokenizerOf(metadataWith({ "tokenizer.chat_template": template }));
    expect(tokenizer.applyChatTemplate([{ role: "user", content: "" }])).toBe("<|begin|>user<|end|>");
  });
});

describe("the tokenizer of a GGUF file is refused", () => {
  const WRONG: readonly (readonly [
    string,
    Parameters<typeof metadataWith>[0],
    RegExp,
    typeof FileError | typeof UnsupportedError,
  ])[] = [
    [
      "without a model",
      { [key("model")]: undefined },
      /the metadata have no tokenizer.ggml.model/,
      FileError,
    ],
    [
      "of WordPiece",
      { [key("model")]: "bert" },
      /model is bert; gpt2, byte-level BPE, and llama, SentencePiece, are supported/,
      UnsupportedError,
    ],
    [
      "with an unknown pre-tokenizer",
      { [key("pre")]: "smolm" },
      /pre-tokenizer smolm .*did you mean smollm\?/,
      UnsupportedError,
    ],
    ["without tokens", { [key("tokens")]: undefined }, /no list of strings tokenizer.ggml.tokens/, FileError],
    [
      "with tokens that are numbers",
      { [key("tokens")]: [1] },
      /no list of strings tokenizer.ggml.tokens/,
      FileError,
    ],
    ["without merges", { [key("merges")]: "a b" }, /no list of strings tokenizer.ggml.merges/, FileError],
    ["with too few types", { [key("token_type")]: [1] }, /must be a list of 259 numbers/, FileError],
    [
      "with a beginning beyond the vocabulary",
      { [key("bos_token_id")]: 999, [key("add_bos_token")]: true },
      /bos_token_id is 999; there are 259/,
      FileError,
    ],
    [
      "with an end beyond the vocabulary",
      { [key("eos_token_id")]: 999 },
      /the token 999, which begins or ends/,
      FileError,
    ],
  ];
  it.each(WRONG)("%s", async (_, changes, message, kind) => {
    const failure = await tokenizerOf(metadataWith(changes)).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(kind);
    expect(String(failure)).toMatch(message);
  });
});
