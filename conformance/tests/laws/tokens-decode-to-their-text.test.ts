/**
 * Under byte-level BPE the tokens of a text decode to that text, whatever the vocabulary, the merges and the pre-tokenizer. For
 * any tokens, a stream returns the same text as decoding all tokens at once, and never a part of a character.
 */
import fc from "fast-check";
import { expect, it } from "vitest";
import { draws } from "../harness/draws.js";
import { metadataOf, TEXTS, TOKENIZERS, tokenizerOf } from "../models/tokenizer/drawn.js";

it("decode(encode(text)) is text", async () => {
  await fc.assert(
    fc.asyncProperty(TOKENIZERS, fc.array(TEXTS, { minLength: 1, maxLength: 8 }), async (metadata, texts) => {
      const tokenizer = await tokenizerOf(metadata);
      for (const text of texts) {
        const ids = tokenizer.encode(text, { addSpecialTokens: false });
        expect(tokenizer.decode(ids)).toBe(text);
        const tokens = tokenizer.encode(text);
        expect(tokenizer.decode(tokens).endsWith(text)).toBe(true);
      }
    }),
    { numRuns: draws(200) },
  );
});

it("a stream returns, joined, what decode returns; each part is well-formed and completes characters", async () => {
  await fc.assert(
    fc.asyncProperty(
      TOKENIZERS,
      fc.array(fc.nat(), { maxLength: 60 }),
      fc.boolean(),
      TEXTS,
      async (metadata, drawnIds, skipSpecialTokens, text) => {
        const tokenizer = await tokenizerOf(metadata);
        const drawnTokens = drawnIds.map((id) => id % tokenizer.vocabularySize);
        for (const ids of [
          drawnTokens,
          [...tokenizer.encode(text), ...drawnTokens],
          [...tokenizer.encode(text)],
        ]) {
          const stream = tokenizer.decodeStream({ skipSpecialTokens });
          // the same stream decodes two texts, one after the other
          for (let repetition = 0; repetition < 2; repetition++) {
            const pieces = [...ids.map((id) => stream.step(id)), stream.end()];
            expect(pieces.join("")).toBe(tokenizer.decode(ids, { skipSpecialTokens }));
            for (const piece of pieces) expect(/\p{Surrogate}/u.test(piece)).toBe(false);
          }
        }
      },
    ),
    { numRuns: draws(120) },
  );
});

it("a stream returns a character with its last byte, and U+FFFD only for bytes that are no character", async () => {
  const bytes = await tokenizerOf(metadataOf([], "gpt-2"));
  await fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 20 }), (text) => {
      const stream = bytes.decodeStream();
      for (const character of text) {
        const utf8Bytes = [...new TextEncoder().encode(character)];
        const pieces = utf8Bytes.map((byte) => stream.step(byte));
        expect(pieces).toEqual([...utf8Bytes.slice(1).map(() => ""), character]);
      }
      expect(stream.end()).toBe("");
    }),
  );
});
