/** Reads the tokenizer of a model from its files. */
import { readdir, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { GgufFile, isGguf } from "../../checkpoints/gguf/file.js";
import { readJsonFile, readOptionalJson } from "../../checkpoints/stored/open.js";
import { FileError } from "../../errors.js";
import { codeOf, fileError, openFile, readAt } from "../../io/files.js";
import { domain } from "../../options.js";
import type { TokenizerDefinition } from "./definition.js";
import { ggufDefinition } from "./gguf.js";
import { hubDefinition } from "./hub.js";
import { Tokenizer } from "./tokenizer.js";

const TOKENIZER = "tokenizer.json";
const MAX_TEMPLATE_BYTES = 1 << 20;

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
  return Tokenizer.of(await readDefinition(path));
}

/** Reads the definition of a tokenizer. Throws the errors of `loadTokenizer`. */
export async function readDefinition(path: string): Promise<TokenizerDefinition> {
  if (path.includes("\0")) throw new FileError(`${path}: cannot be read: a path has no zero bytes`);
  const status = await stat(path).catch((cause: unknown) => {
    throw fileError(path, "cannot be read", cause);
  });
  if (!status.isDirectory()) {
    if (await isGguf(path)) return readGguf(path);
    return readFolder(dirname(path));
  }
  return readFolder(path);
}

async function readFolder(folder: string): Promise<TokenizerDefinition> {
  const names = (await readdir(folder)).toSorted();
  if (names.includes(TOKENIZER)) return readHub(folder);
  const gguf = names.find((name) => name.endsWith(".gguf") && !name.startsWith("."));
  if (gguf !== undefined) return readGguf(join(folder, gguf));
  throw new FileError(
    `${folder}: has neither ${TOKENIZER} nor a .gguf file; give the folder of a model with its tokenizer`,
  );
}

async function readHub(folder: string): Promise<TokenizerDefinition> {
  return hubDefinition(folder, {
    tokenizer: await readJsonFile(join(folder, TOKENIZER)),
    tokenizerConfig: await readOptionalJson(join(folder, "tokenizer_config.json")),
    generationConfig: await readOptionalJson(join(folder, "generation_config.json")),
    config: await readOptionalJson(join(folder, "config.json")),
    chatTemplate: await readOptionalText(join(folder, "chat_template.jinja")),
  });
}

async function readGguf(path: string): Promise<TokenizerDefinition> {
  const file = await GgufFile.open(path);
  try {
    return await ggufDefinition(path, (key) => file.readMetadataContent(key));
  } finally {
    await file.close();
  }
}

async function readOptionalText(path: string): Promise<string | undefined> {
  const opened = await openFile(path).catch((error: unknown) => {
    if (error instanceof FileError && codeOf(error.cause) === "ENOENT") return undefined;
    throw error;
  });
  if (!opened) return undefined;
  const { handle, size } = opened;
  try {
    if (size > MAX_TEMPLATE_BYTES)
      throw new FileError(`${path}: has ${size} bytes; ${MAX_TEMPLATE_BYTES} are the most`);
    return new TextDecoder().decode(await readAt(path, handle, 0, size));
  } finally {
    await handle.close();
  }
}
