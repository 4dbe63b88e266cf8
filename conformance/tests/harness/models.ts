/** Real models, which `scripts/fetch-model` downloads, and the message of tests whose model is missing. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const FOLDER = process.env.LOCKSTEP_MODELS ?? fileURLToPath(new URL("../../../.models", import.meta.url));
const NAME = "SmolLM2-135M-Instruct";

/** The folder of SmolLM2-135M-Instruct, with one GGUF file. */
export const SMOLLM2 = join(FOLDER, NAME);
/** The GGUF file of SmolLM2-135M-Instruct. */
export const SMOLLM2_FILE = join(SMOLLM2, `${NAME}.Q4_1.gguf`);

/** The reason why tests of SmolLM2 cannot run; undefined if the model is present. */
export const missingSmolLM2: string | undefined = existsSync(SMOLLM2_FILE)
  ? undefined
  : `${NAME} is not here; scripts/fetch-model downloads it`;
