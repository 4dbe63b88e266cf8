/** The vocabulary in the metadata of a GGUF file. */
import type { MetadataContent } from "../../checkpoints/gguf/facts.js";
import { FileError } from "../../errors.js";

export const PREFIX = "tokenizer.ggml.";

/** The types of tokens. */
export const TOKEN_TYPE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

/** The tokens of a file, and its other metadata about them. */
export interface GgufVocabulary {
  /** The file, for errors. */
  readonly path: string;
  /** The value of a key without its prefix; undefined if the key is absent. */
  readonly at: (key: string) => Promise<MetadataContent | undefined>;
  readonly tokens: readonly string[];
  /** The type of each token. */
  readonly types: readonly unknown[];
}

/** Returns a list of strings. Throws `FileError` if the key has none. */
export async function requireTexts(
  path: string,
  at: GgufVocabulary["at"],
  key: string,
): Promise<readonly string[]> {
  const value = await at(key);
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) return value;
  throw new FileError(
    `${path}: the metadata have no list of strings ${PREFIX}${key}; the tokenizer needs it`,
  );
}

/** Returns a list with a number for each token. Throws `FileError` if the key has none. */
export async function requireNumbers(
  path: string,
  at: GgufVocabulary["at"],
  key: string,
  count: number,
): Promise<readonly number[]> {
  const value = await at(key);
  const isComplete = Array.isArray(value) && value.length === count;
  if (isComplete && value.every((each) => typeof each === "number")) return value;
  throw new FileError(`${path}: ${PREFIX}${key} must be a list of ${count} numbers, one for each token`);
}
