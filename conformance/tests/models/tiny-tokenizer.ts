/** A tokenizer with one token for each of 40 characters, and a tiny language model with it. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { TINY, tinyModel, VOCABULARY, writeHub } from "./tiny-model.js";

const SPECIAL = ["<|user|>", "<|end|>"];
const TOKENS = [..."abc", ...SPECIAL, ..."defghijklmnopqrstuvwxyz", "Ġ", "Ċ", ..."0123456789"];

/** Writes a tiny Llama with a tokenizer and a chat template into a folder. No token ends a text. */
export async function writeLanguageModel(folder: string): Promise<void> {
  if (TOKENS.length !== VOCABULARY) throw new Error(`there are ${TOKENS.length} tokens`);
  await writeHub(folder, tinyModel(TINY));
  const json = {
    added_tokens: SPECIAL.map((content) => ({ id: TOKENS.indexOf(content), content, special: true })),
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: true },
    decoder: { type: "ByteLevel" },
    model: { type: "BPE", vocab: Object.fromEntries(TOKENS.map((token, id) => [token, id])), merges: [] },
  };
  const chat_template = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}";
  await writeFile(join(folder, "tokenizer.json"), JSON.stringify(json));
  await writeFile(join(folder, "tokenizer_config.json"), JSON.stringify({ chat_template }));
}
