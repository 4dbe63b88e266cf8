/** The tokenizer of SentencePiece in a GGUF file, in the form of tokenizer.json. */
import type { JsonObject } from "../../io/json/json-object.js";
import { type GgufVocabulary, requireNumbers, TOKEN_TYPE } from "./gguf-metadata.js";

/** The character that stands for a space. */
const SPACE = "▁";

/** A step of a normalizer or decoder that replaces a string. */
const replace = (from: string, content: string) => ({ type: "Replace", pattern: { String: from }, content });

/**
 * Returns the normalizer, decoder and model of BPE with scores. SentencePiece joins the neighbouring pieces whose union has the
 * largest score, the leftmost ones among equals. Merges in the order of falling scores do the same. A character without a token
 * becomes its bytes.
 */
export async function sentencePieceParts(vocabulary: GgufVocabulary): Promise<JsonObject> {
  const { path, at, tokens, types } = vocabulary;
  const scores = await requireNumbers(path, at, "scores", tokens.length);
  const hasPrefix = (await at("add_space_prefix")) ?? true;
  const unknown = types.indexOf(TOKEN_TYPE.unknown);
  const spaces = replace(" ", SPACE);
  const prefix = { type: "Prepend", prepend: SPACE };
  const decoders = [replace(SPACE, " "), { type: "ByteFallback" }, { type: "Fuse" }];
  const strip = { type: "Strip", content: " ", start: 1, stop: 0 };
  return {
    normalizer: hasPrefix === true ? { type: "Sequence", normalizers: [prefix, spaces] } : spaces,
    pre_tokenizer: null,
    decoder: { type: "Sequence", decoders: hasPrefix === true ? [...decoders, strip] : decoders },
    model: {
      type: "BPE",
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: mergesOf(vocabulary, scores),
      byte_fallback: true,
      fuse_unk: true,
      ...(unknown < 0 ? {} : { unk_token: tokens[unknown] }),
    },
  };
}

/** The pairs of normal tokens whose union is a normal token, the largest score of the union first. */
function mergesOf(
  { tokens, types }: GgufVocabulary,
  scores: readonly number[],
): readonly (readonly [string, string])[] {
  const isNormal = (id: number): boolean => types.length === 0 || types[id] === TOKEN_TYPE.normal;
  const normal = tokens.map((_, id) => id).filter(isNormal);
  const pieces = new Set(normal.map((id) => tokens[id]));
  const order = normal.toSorted((a, b) => (scores[b] as number) - (scores[a] as number) || a - b);
  return order.flatMap((id) => pairsOf(tokens[id] as string, pieces));
}

/** The splits of a token into two pieces, by descending length of the left piece. */
function pairsOf(token: string, pieces: ReadonlySet<string | undefined>): (readonly [string, string])[] {
  const pairs: (readonly [string, string])[] = [];
  for (let at = token.length - 1; at > 0; at--) {
    const [left, right] = [token.slice(0, at), token.slice(at)];
    if (pieces.has(left) && pieces.has(right)) pairs.push([left, right]);
  }
  return pairs;
}
