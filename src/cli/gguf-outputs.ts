/** The files that a conversion of a GGUF file to another container writes besides weights. */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { writeJson } from "../checkpoints/convert/output-folder.js";
import { openCheckpointFiles } from "../checkpoints/stored/open.js";
import { LockstepError, messageOf } from "../errors.js";
import { hubFiles } from "../models/tokenizer/hub-files.js";
import { definitionAt } from "../models/tokenizer/load.js";

/** Files that the output lacks, with the reasons. */
type MissingFiles = Readonly<Record<string, string>>;

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

/**
 * Writes the files of the tokenizer of a GGUF file into the folder of its conversion, unless it has a tokenizer. Returns the
 * files that the folder lacks; undefined for an input or an output of another kind.
 */
export async function writeTokenizerOf(
  path: string,
  output: string,
  isGguf: boolean,
): Promise<MissingFiles | undefined> {
  if (isGguf) return undefined;
  const files = await openCheckpointFiles(path);
  await files.close();
  if (!files.gguf) return undefined;
  const missingFiles: Record<string, string> = {};
  if (!(await exists(join(output, "config.json"))))
    missingFiles["config.json"] =
      `the configuration of the architecture ${String(files.gguf.metadata["general.architecture"])} is not known`;
  if (await exists(join(output, "tokenizer.json"))) return missingFiles;
  try {
    for (const [name, content] of Object.entries(hubFiles(await definitionAt(path))))
      await writeJson(join(output, name), content);
  } catch (error) {
    if (!(error instanceof LockstepError)) throw error;
    missingFiles["tokenizer.json"] = messageOf(error);
  }
  return missingFiles;
}
