/** Loads language models from a disk. */
import { type Backend, requireBackend } from "../backends/backend.js";
import { requireCheckpointPath } from "../checkpoints/api/options.js";
import { openCheckpointFiles } from "../checkpoints/stored/open.js";
import type { CausalLM } from "./causal-lm.js";
import { checkLoadOptions, type LoadCausalLMOptions, loadFiles } from "./load-files.js";

/**
 * Loads a language model from a folder with config.json and safetensors files, or from a GGUF file or a folder of them. Weights
 * in any form that `openCheckpoint` reads are dequantized to f32 and rounded to `dtype`, one tensor at a time; with `weights`,
 * they are first converted to another form. The caller disposes of the model.
 *
 * @throws `FileError` for a path that leads to no checkpoint, a checkpoint with errors that need no codes (see
 * `verifyCheckpoint`), weights that cannot have the form `weights`, a configuration that is missing, damaged or of an unknown
 * family, and tensors that are missing, have another shape than the configuration says, or belong to no parameter;
 * `ArgumentError` for an invalid argument, `DTypeError` for a `dtype` other than f32, bf16 and f16, `DisposedError` for a
 * disposed backend, `OutOfMemoryError` if the weights do not fit into memory.
 */
export async function loadCausalLM(
  backend: Backend,
  path: string,
  options: LoadCausalLMOptions = {},
): Promise<CausalLM> {
  requireBackend("loadCausalLM", backend);
  requireCheckpointPath("loadCausalLM", "path", path);
  const checkedOptions = checkLoadOptions("loadCausalLM", options);
  return (await loadFiles(backend, await openCheckpointFiles(path), checkedOptions)).model;
}
