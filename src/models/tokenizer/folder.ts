/** Reads the definition of a tokenizer from the files of a folder. */
import { type CheckpointFolder, readJson, requireJson } from "../../checkpoints/stored/folder.js";
import { FileError } from "../../errors.js";
import type { TokenizerDefinition } from "./definition.js";
import { ggufDefinition } from "./gguf.js";
import { hubDefinition } from "./hub.js";

const TOKENIZER = "tokenizer.json";
const MAX_TEMPLATE_BYTES = 1 << 20;

/** Reads the definition of a tokenizer. Throws the errors of `loadTokenizer`. */
export async function readDefinition(folder: CheckpointFolder): Promise<TokenizerDefinition> {
  const names = (await folder.names()).toSorted();
  if (names.includes(TOKENIZER)) return readHub(folder);
  const gguf = names.find((name) => name.endsWith(".gguf") && !name.startsWith("."));
  if (gguf !== undefined) return ggufDefinitionIn(folder, gguf);
  throw new FileError(
    `${folder.path}: has neither ${TOKENIZER} nor a .gguf file; give the folder of a model with its tokenizer`,
  );
}

async function readHub(folder: CheckpointFolder): Promise<TokenizerDefinition> {
  return hubDefinition(folder.path, {
    tokenizer: await requireJson(folder, TOKENIZER),
    tokenizerConfig: await readJson(folder, "tokenizer_config.json"),
    generationConfig: await readJson(folder, "generation_config.json"),
    config: await readJson(folder, "config.json"),
    chatTemplate: await folder.readText("chat_template.jinja", MAX_TEMPLATE_BYTES),
  });
}

/** Reads the definition in the metadata of a GGUF file. */
export async function ggufDefinitionIn(folder: CheckpointFolder, name: string): Promise<TokenizerDefinition> {
  const file = await folder.openGguf(name);
  try {
    return await ggufDefinition(folder.pathOf(name), (key) => file.readMetadataContent(key));
  } finally {
    await file.close();
  }
}
