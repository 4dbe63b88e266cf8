/** A tiny language model with a tokenizer, for commands that take a text. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { TINY, type TinyChoices, tinyModel, writeHub } from "./tiny-model.js";

/** The characters of the vocabulary. In byte-level BPE, "Ġ" is a space. */
const CHARACTERS = "abcdefghijklmnopqrstuvwxyzĠ.";

/**
 * Writes a folder with a model, and a tokenizer that has a token for each small letter, space, full stop, and character of
 * `extraCharacters`. It reads capitals as small letters.
 */
export async function writeTinyTextModel(
  folder: string,
  {
    extraCharacters = "",
    choices = TINY,
  }: { readonly extraCharacters?: string; readonly choices?: TinyChoices } = {},
): Promise<void> {
  await writeHub(folder, tinyModel(choices));
  const tokenizer = {
    normalizer: { type: "Lowercase" },
    model: {
      type: "BPE",
      vocab: Object.fromEntries([...CHARACTERS, ...extraCharacters].map((character, id) => [character, id])),
      merges: [],
    },
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
    decoder: { type: "ByteLevel" },
    added_tokens: [],
  };
  await writeFile(join(folder, "tokenizer.json"), JSON.stringify(tokenizer));
}

/** The tokens of a text under this tokenizer. */
export function tinyTokens(text: string): readonly number[] {
  return Array.from(text, (character) => CHARACTERS.indexOf(character === " " ? "Ġ" : character));
}
