/** Drawn tokenizers of byte-level BPE, and texts. */
import fc from "fast-check";
import type { MetadataContent } from "../../../../src/checkpoints/gguf/facts.js";
import { ggufDefinition } from "../../../../src/models/tokenizer/gguf.js";
import { PATTERN_ROWS } from "../../../../src/models/tokenizer/patterns.js";
import { Tokenizer } from "../../../../src/models/tokenizer/tokenizer.js";

/** The alphabet of GPT-2's byte-level BPE, computed from its definition, independently of the code under test. */
export const ALPHABET: readonly string[] = alphabet();

function alphabet(): readonly string[] {
  const ranges = [
    [33, 126],
    [161, 172],
    [174, 255],
  ] as const;
  let otherCount = 0;
  return Array.from({ length: 256 }, (_, byte) => {
    const isItself = ranges.some(([firstByte, last]) => byte >= firstByte && byte <= last);
    return String.fromCodePoint(isItself ? byte : 256 + otherCount++);
  });
}

export type Metadata = Readonly<Record<string, MetadataContent>>;

/** GGUF metadata of a tokenizer. The vocabulary has all bytes, then the results of the merges, then two special tokens. */
export function metadataOf(merges: readonly (readonly [number, number])[], pre: string): Metadata {
  const tokens = [...ALPHABET];
  const written = new Set(tokens);
  const keptTokens: string[] = [];
  for (const [left, rightPiece] of merges) {
    const [a, b] = [tokens[left % tokens.length] as string, tokens[rightPiece % tokens.length] as string];
    if (written.has(a + b)) continue;
    written.add(a + b);
    tokens.push(a + b);
    keptTokens.push(`${a} ${b}`);
  }
  const special = ["<|begin|>", "<|end|>"];
  return {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": pre,
    "tokenizer.ggml.tokens": [...tokens, ...special],
    "tokenizer.ggml.token_type": [...tokens.map(() => 1), ...special.map(() => 3)],
    "tokenizer.ggml.merges": keptTokens,
    "tokenizer.ggml.bos_token_id": tokens.length,
    "tokenizer.ggml.eos_token_id": tokens.length + 1,
  };
}

/** The tokenizer of metadata. */
export async function tokenizerOf(metadata: Metadata): Promise<Tokenizer> {
  return Tokenizer.of(await ggufDefinition("drawn.gguf", async (key) => metadata[key]));
}

/** Any well-formed text: of all characters, of characters that patterns distinguish, and of few characters, which merges join. */
export const TEXTS: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: "binary", maxLength: 40 }),
  fc.string({ unit: "grapheme", maxLength: 40 }),
  fc.string({ unit: fc.constantFrom(..."aB1 \n\r\t'’s.,é中²\u0301\u0085\ufeff😀"), maxLength: 60 }),
  fc.constantFrom("\ufeff", "\ufeffa", "\ufffd", "\u0000", "\r\n\r\n", "<|begin|><|end|>x<|begin|>", ""),
);

/** Metadata of drawn tokenizers. */
export const TOKENIZERS: fc.Arbitrary<Metadata> = fc
  .record({
    merges: fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 60 }),
    pre: fc.constantFrom(...PATTERN_ROWS.flatMap(({ names }) => names)),
  })
  .map(({ merges, pre }) => metadataOf(merges, pre));
