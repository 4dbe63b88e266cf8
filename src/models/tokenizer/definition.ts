/** The definition of a tokenizer, which does not depend on the format of the files. */
import type { JsonObject } from "../../io/header/header.js";

/** A tokenizer as plain data. */
export interface TokenizerDefinition {
  /** The file or folder that it was read from, for messages. */
  readonly path: string;
  /** The content of tokenizer.json, or the equivalent content for a GGUF file. */
  readonly tokenizer: JsonObject;
  /** The token of the beginning of a text. */
  readonly bosTokenId?: number | undefined;
  /** The tokens that end a generation, in ascending order. */
  readonly eosTokenIds: readonly number[];
  /** Chat templates by name; the usual one is "default". */
  readonly chatTemplates: ReadonlyMap<string, string>;
  /** Ids whose tokens pad the vocabulary and have no text. Default: none. */
  readonly unusedTokenIds?: ReadonlySet<number> | undefined;
}

/** The name of the default chat template. */
export const DEFAULT_TEMPLATE = "default";

/** Returns the values that are token ids, without repetition, in ascending order. */
export function idsOf(...values: readonly unknown[]): readonly number[] {
  const ids = values.flat().filter((value): value is number => Number.isSafeInteger(value));
  return [...new Set(ids)].filter((id) => id >= 0).sort((a, b) => a - b);
}
