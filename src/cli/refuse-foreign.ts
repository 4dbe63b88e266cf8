/** Refuses tensors of other libraries' conventions where a command would copy them as they are, or take scales for values. */

import { type Foreign, foreignTensors } from "../checkpoints/recognize/foreign.js";
import { FileError } from "../errors.js";
import type { TensorEntry } from "../io/header/header.js";
import type { TensorSource } from "../io/source.js";

/** What a command does with a tensor that has no values of its own. */
type Refused = (foreign: Foreign, entry: TensorEntry) => boolean;

/**
 * Throws `FileError` that names the first tensor for which `refused` is true: codes and scales of a quantized weight, and codes
 * whose scales are absent.
 */
export function requireOwnValues(file: TensorSource, refused: Refused): void {
  for (const foreign of foreignTensors(file).values()) {
    const entry = file.entry(foreign.name);
    if (!refused(foreign, entry)) continue;
    const instead =
      foreign.kind === "part" ? "lockstep convert reads it with its scales" : "lockstep verify tells more";
    throw new FileError(`${file.path}: tensor "${foreign.name}": ${foreign.why}; ${instead}`);
  }
}
