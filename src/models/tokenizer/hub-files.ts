/** The files of a tokenizer in the form of the Hugging Face Hub. */
import { isObject, type JsonObject } from "../../io/json/json-object.js";
import { DEFAULT_TEMPLATE, type TokenizerDefinition } from "./definition.js";

/**
 * Returns the contents of the Hub files, by name, from which `hubDefinition` reads an equal tokenizer. Omits tokens that only
 * pad the vocabulary.
 */
export function hubFiles(definition: TokenizerDefinition): Readonly<Record<string, JsonObject>> {
  const { tokenizer, bosTokenId, eosTokenIds, chatTemplates, unusedTokenIds = new Set() } = definition;
  const { model } = tokenizer;
  const { vocab } = isObject(model) ? model : {};
  const tokens = isObject(vocab) ? Object.entries(vocab) : [];
  const contentOf = (id: number | undefined): string | undefined =>
    tokens.find(([, each]) => each === id)?.[0];
  const named = (key: string, content: string | undefined): JsonObject =>
    content === undefined ? {} : { [key]: content };
  const template = chatTemplates.get(DEFAULT_TEMPLATE);
  return {
    "tokenizer.json": {
      version: "1.0",
      truncation: null,
      padding: null,
      ...tokenizer,
      model: {
        ...(isObject(model) ? model : {}),
        vocab: Object.fromEntries(tokens.filter(([, id]) => !unusedTokenIds.has(Number(id)))),
      },
    },
    "tokenizer_config.json": {
      tokenizer_class: "PreTrainedTokenizerFast",
      ...named("bos_token", contentOf(bosTokenId)),
      ...named("eos_token", contentOf(eosTokenIds[0])),
      ...named("chat_template", template),
    },
    "generation_config.json": {
      ...(bosTokenId === undefined ? {} : { bos_token_id: bosTokenId }),
      eos_token_id: eosTokenIds,
    },
  };
}
