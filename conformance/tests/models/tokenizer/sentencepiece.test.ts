/** Tokenizers of SentencePiece in GGUF metadata give the tokens of its algorithm, written here from its definition. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { JsonObject } from "../../../../src/io/json/json-object.js";
import { ggufDefinition } from "../../../../src/models/tokenizer/gguf.js";
import { hubDefinition } from "../../../../src/models/tokenizer/hub.js";
import { hubFiles } from "../../../../src/models/tokenizer/hub-files.js";
import { Tokenizer } from "../../../../src/models/tokenizer/tokenizer.js";
import { draws } from "../../harness/draws.js";
import { type Metadata, tokenizerOf } from "./drawn.js";

const SPECIAL = ["<unk>", "<s>", "</s>"];
const BYTES = Array.from(
  { length: 256 },
  (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`,
);
const CHARACTERS = ["▁", "a", "b", "c", "é", "😀"];
const FIRST = SPECIAL.length + BYTES.length;

/** Metadata of a vocabulary of single characters and unions of two earlier pieces, whose scores fall in a drawn order. */
function metadataOf(unions: readonly (readonly [number, number])[], order: readonly number[]): Metadata {
  const pieces = [...CHARACTERS];
  for (const [left, rightPiece] of unions) {
    const union = `${pieces[left % pieces.length]}${pieces[rightPiece % pieces.length]}`;
    if (!pieces.includes(union) && union.length < 12) pieces.push(union);
  }
  const scores = pieces.map((_, i) =>
    i < CHARACTERS.length ? -1000 : -(order[i % order.length] ?? 0) * 64 - i,
  );
  return {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [...SPECIAL, ...BYTES, ...pieces, "<tool>"],
    "tokenizer.ggml.scores": [...SPECIAL.map(() => 0), ...BYTES.map(() => 0), ...scores, -1000],
    "tokenizer.ggml.token_type": [2, 3, 3, ...BYTES.map(() => 6), ...pieces.map(() => 1), 4],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
  };
}

/** The ids of a text without special tokens: joins the two neighbours of the largest score until none are a piece. */
function encodeByDefinition(metadata: Metadata, text: string, hasPrefix: boolean): readonly number[] {
  const tokens = metadata["tokenizer.ggml.tokens"] as readonly string[];
  const scores = metadata["tokenizer.ggml.scores"] as readonly number[];
  const idOf = (piece: string): number => {
    const id = tokens.indexOf(piece);
    return id >= FIRST && id < tokens.length - 1 ? id : -1;
  };
  if (text === "") return [];
  const symbols = Array.from(`${hasPrefix ? " " : ""}${text}`.replaceAll(" ", "▁"));
  for (;;) {
    let [best, position] = [Number.NEGATIVE_INFINITY, -1];
    for (let i = 0; i + 1 < symbols.length; i++) {
      const id = idOf(`${symbols[i]}${symbols[i + 1]}`);
      if (id >= 0 && (scores[id] as number) > best) [best, position] = [scores[id] as number, i];
    }
    if (position < 0) break;
    symbols.splice(position, 2, `${symbols[position]}${symbols[position + 1]}`);
  }
  return symbols.flatMap((symbol) => {
    const id = idOf(symbol);
    return id >= 0 ? [id] : [...new TextEncoder().encode(symbol)].map((byte) => SPECIAL.length + byte);
  });
}

const VOCABULARIES = fc
  .record({
    unions: fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 40 }),
    order: fc.array(fc.nat(50), { minLength: 1, maxLength: 40 }),
  })
  .map(({ unions, order }) => metadataOf(unions, order));
const TEXTS = fc.oneof(
  fc.string({ unit: fc.constantFrom(..." abcé😀"), maxLength: 40 }),
  fc.string({ unit: fc.constantFrom(..." ab\n中▁z"), maxLength: 20 }),
);

describe("the tokenizer of SentencePiece in a GGUF file", () => {
  it("joins the pieces of the largest score, and writes other characters as bytes", async () => {
    await fc.assert(
      fc.asyncProperty(VOCABULARIES, fc.boolean(), fc.array(TEXTS), async (vocabulary, hasPrefix, texts) => {
        const metadata = hasPrefix ? vocabulary : { ...vocabulary, "tokenizer.ggml.add_space_prefix": false };
        const definition = await ggufDefinition("drawn.gguf", async (key) => metadata[key]);
        const files = JSON.parse(JSON.stringify(hubFiles(definition))) as Record<string, JsonObject>;
        const tokenizer = files["tokenizer.json"] as JsonObject;
        const hub = Tokenizer.of(hubDefinition("folder", { tokenizer }));
        for (const tokenizer of [Tokenizer.of(definition), hub])
          for (const text of texts) {
            const ids = tokenizer.encode(text, { addSpecialTokens: false });
            expect([...ids]).toEqual(encodeByDefinition(metadata, text, hasPrefix));
            expect(tokenizer.decode(ids)).toBe(text.replaceAll("▁", " "));
          }
      }),
      { numRuns: draws(300, 30) },
    );
  });

  it("begins texts with a token unless the metadata say otherwise, and finds tokens that users defined", async () => {
    const metadata = metadataOf([[1, 2]], [0]);
    const [space, , , c, ab] = [0, 1, 2, 3, 6].map((index) => FIRST + index);
    const tool = FIRST + 7;
    expect([...(await tokenizerOf(metadata)).encode("ab<tool>c")]).toEqual([1, space, ab, tool, space, c]);
    const bare = {
      ...metadata,
      "tokenizer.ggml.add_bos_token": false,
      "tokenizer.ggml.add_space_prefix": false,
    };
    expect([...(await tokenizerOf(bare)).encode("ab<tool>c</s>")]).toEqual([ab, tool, c, 2]);
  });

  it.each([undefined, [0, 1], "none"])("is refused without a score for each token: %j", async (scores) => {
    const { "tokenizer.ggml.scores": _, ...otherMetadata } = metadataOf([], [0]);
    const metadata =
      scores === undefined ? otherMetadata : { ...otherMetadata, "tokenizer.ggml.scores": scores };
    await expect(tokenizerOf(metadata)).rejects.toThrow(
      /drawn\.gguf: tokenizer\.ggml\.scores must be a list of 266 numbers, one for each token/,
    );
  });
});
