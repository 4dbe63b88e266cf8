/** Reads the tokenizer of a model from its files on a disk. */
import { basename, dirname } from "node:path";
import { isGguf } from "../../checkpoints/gguf/open.js";
import { diskFolder, isFolder } from "../../checkpoints/stored/open.js";
import { domain } from "../../options.js";
import type { TokenizerDefinition } from "./definition.js";
import { ggufDefinitionIn, readDefinition } from "./folder.js";
import { Tokenizer } from "./tokenizer.js";

const pathDomain = domain(
  (value) => typeof value === "string" && value !== "",
  "the path of a file or a folder",
);

/**
 * Reads the tokenizer of a model: of a folder with tokenizer.json (and tokenizer_config.json, generation_config.json, config.json
 * and chat_template.jinja, if they are there), of a file of weights in such a folder, or of a GGUF file or its folder. Byte-level
 * BPE, and BPE with bytes as tokens (SentencePiece), are supported. Parts that are not supported are refused by name.
 *
 * @throws `ArgumentError` for an invalid path, `FileError` if there is no tokenizer, or a file of it cannot be read or parsed,
 * `UnsupportedError` for a part of the tokenizer that is not supported.
 */
export async function loadTokenizer(path: string): Promise<Tokenizer> {
  pathDomain("loadTokenizer", "path", path);
  return Tokenizer.of(await definitionAt(path));
}

/** Reads the definition of a tokenizer. Throws the errors of `loadTokenizer`. */
export async function definitionAt(path: string): Promise<TokenizerDefinition> {
  if (await isFolder(path)) return readDefinition(diskFolder(path));
  const folder = diskFolder(dirname(path));
  return (await isGguf(path)) ? ggufDefinitionIn(folder, basename(path)) : readDefinition(folder);
}
