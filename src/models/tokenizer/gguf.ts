/** The tokenizer in the metadata of a GGUF file, in the form of tokenizer.json. */
import type { MetadataContent } from "../../checkpoints/gguf/facts.js";
import { FileError, UnsupportedError } from "../../errors.js";
import type { JsonObject } from "../../io/json/json-object.js";
import { nearest } from "../../text/nearest.js";
import { DEFAULT_TEMPLATE, idsOf, type TokenizerDefinition } from "./definition.js";
import { type GgufVocabulary, PREFIX, requireTexts, TOKEN_TYPE } from "./gguf-metadata.js";
import { BYTES_ONLY, PATTERN_ROWS, type PatternRow, patternRow, splitBy } from "./patterns.js";
import { sentencePieceParts } from "./sentencepiece.js";

const CHAT_TEMPLATE = "tokenizer.chat_template";

/** Metadata by key; undefined for an absent key. */
export type ReadMetadata = (key: string) => Promise<MetadataContent | undefined>;

/** A kind of tokenizer. */
interface Kind {
  /** Its name in the metadata. */
  readonly name: string;
  /** Returns parts of tokenizer.json, and whether a beginning-of-text token precedes a text if the metadata do not tell. */
  readonly read: (
    vocabulary: GgufVocabulary,
  ) => Promise<{ readonly parts: JsonObject; readonly impliesBos: boolean }>;
}

const KINDS: readonly Kind[] = [
  {
    name: "gpt2",
    read: async ({ path, at, tokens }) => {
      const row = requireRow(path, (await at("pre")) ?? "default");
      const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]));
      const merges = await requireTexts(path, at, "merges");
      const parts = {
        normalizer: null,
        pre_tokenizer: { type: "Sequence", pretokenizers: [...row.patterns.map(splitBy), BYTES_ONLY] },
        decoder: { type: "ByteLevel" },
        model: { type: "BPE", vocab, merges, ignore_merges: row.ignoresMerges },
      };
      return { parts, impliesBos: row.addsBos };
    },
  },
  {
    name: "llama",
    read: async (vocabulary) => ({ parts: await sentencePieceParts(vocabulary), impliesBos: true }),
  },
];

/**
 * Returns the tokenizer of a GGUF file. Throws `FileError` if the metadata lack a part of it or contradict themselves,
 * `UnsupportedError` for a kind of tokenizer or a pre-tokenizer that is not supported.
 */
export async function ggufDefinition(path: string, read: ReadMetadata): Promise<TokenizerDefinition> {
  const at = (key: string): Promise<MetadataContent | undefined> => read(PREFIX + key);
  const model = await at("model");
  if (model === undefined)
    throw new FileError(`${path}: the metadata have no ${PREFIX}model; it has no tokenizer`);
  const kind = KINDS.find(({ name }) => name === model);
  if (!kind)
    throw new UnsupportedError(
      "loadTokenizer",
      `${path}: ${PREFIX}model is ${String(model)}; gpt2, byte-level BPE, and llama, SentencePiece, are supported: give a folder with tokenizer.json`,
    );
  const tokens = await requireTexts(path, at, "tokens");
  const types = requireTypes(path, await at("token_type"), tokens.length);
  const { parts, impliesBos } = await kind.read({ path, at, tokens, types });
  const bosTokenId = idOf(await at("bos_token_id"));
  const eosTokenId = idOf(await at("eos_token_id"));
  const addsBos = (await at("add_bos_token")) ?? impliesBos;
  const addsEos = (await at("add_eos_token")) ?? false;
  const template = await read(CHAT_TEMPLATE);
  return {
    path,
    tokenizer: {
      added_tokens: addedTokens(tokens, types),
      ...parts,
      post_processor: around(
        addsBos === true ? requireToken(path, "bos", tokens, bosTokenId) : undefined,
        addsEos === true ? requireToken(path, "eos", tokens, eosTokenId) : undefined,
      ),
    },
    bosTokenId,
    eosTokenIds: idsOf(eosTokenId, await at("eot_token_id"), await at("eom_token_id")),
    chatTemplates: new Map(typeof template === "string" ? [[DEFAULT_TEMPLATE, template]] : []),
    unusedTokenIds: new Set(types.flatMap((type, id) => (type === TOKEN_TYPE.unused ? [id] : []))),
  };
}

function requireRow(path: string, name: MetadataContent): PatternRow {
  const row = patternRow(String(name));
  if (row) return row;
  const names = PATTERN_ROWS.flatMap((each) => each.names);
  throw new UnsupportedError(
    "loadTokenizer",
    `${path}: the pre-tokenizer ${String(name)} (${PREFIX}pre) is not supported${nearest(String(name), names)}; there are ${names.join(", ")}; give a folder with tokenizer.json`,
  );
}

/** Returns the type of each token; all tokens are normal if the metadata have no types. */
function requireTypes(path: string, value: MetadataContent | undefined, count: number): readonly unknown[] {
  if (value === undefined) return [];
  if (Array.isArray(value) && value.length === count) return value;
  throw new FileError(`${path}: ${PREFIX}token_type must be a list of ${count} numbers, one for each token`);
}

const idOf = (value: MetadataContent | undefined): number | undefined => idsOf(value)[0];

function requireToken(path: string, name: string, tokens: readonly string[], id: number | undefined): string {
  const token = id === undefined ? undefined : tokens[id];
  if (token !== undefined) return token;
  throw new FileError(`${path}: ${PREFIX}${name}_token_id is ${id}; there are ${tokens.length} tokens`);
}

function addedTokens(tokens: readonly string[], types: readonly unknown[]) {
  return tokens.flatMap((content, id) => {
    const special = types[id] === TOKEN_TYPE.control || types[id] === TOKEN_TYPE.unknown;
    return special || types[id] === TOKEN_TYPE.userDefined
      ? [{ id, content, special, normalized: false }]
      : [];
  });
}

/** The post-processor that puts tokens before and after a text. */
function around(first: string | undefined, last: string | undefined) {
  const tokenOf = (id: string | undefined) =>
    id === undefined ? [] : [{ SpecialToken: { id, type_id: 0 } }];
  if (first === undefined && last === undefined) return null;
  const single = [...tokenOf(first), { Sequence: { id: "A", type_id: 0 } }, ...tokenOf(last)];
  return { type: "TemplateProcessing", single, pair: single };
}
