/** Opens checkpoints from files. */
import { type Checkpoint, checkpointOf } from "../checkpoint.js";
import type { CheckpointFiles } from "../stored/files.js";
import { openCheckpointFiles } from "../stored/open.js";
import { checkOpen, type OpenCheckpointOptions, requireCheckpointPath } from "./options.js";

/**
 * Opens a checkpoint: a safetensors file, the index of a sharded checkpoint, a GGUF file, or the folder of any of them. Reads
 * headers and configurations, and recognizes the quantized weights; reads no codes. Faults of a shard, an index or a
 * configuration become findings.
 *
 * @throws `FileError` if the path leads to no checkpoint, `ArgumentError` for invalid paths and options.
 */
export async function openCheckpoint(path: string, options: OpenCheckpointOptions = {}): Promise<Checkpoint> {
  requireCheckpointPath("openCheckpoint", "path", path);
  const { as } = checkOpen("openCheckpoint", options);
  return checkpointOf(await openCheckpointFiles(path), as);
}

/** Calls `body` with the open files of a checkpoint, and closes them at the end. */
export async function withCheckpointFiles<T>(
  path: string,
  body: (files: CheckpointFiles) => Promise<T>,
): Promise<T> {
  const files = await openCheckpointFiles(path);
  try {
    return await body(files);
  } finally {
    await files.close();
  }
}
