/** Refuses quantized tensors of other libraries where a command would copy them unchanged, or treat codes or scales as values. */

import { type Foreign, foreignTensors } from "../checkpoints/recognize/foreign.js";
import { FileError } from "../errors.js";
import type { TensorEntry } from "../io/header/header.js";
import type { TensorSource } from "../io/source.js";

/** Whether a command refuses a tensor that is part of a quantized weight. */
type Refused = (foreign: Foreign, entry: TensorEntry) => boolean;

/**
 * Throws `FileError` for the first tensor that `refused` selects among codes and scales of quantized weights, and codes without
 * scales.
 */
export function requireOwnValues(file: TensorSource, refused: Refused): void {
  for (const foreign of foreignTensors(file).values()) {
    const entry = file.entry(foreign.name);
    if (!refused(foreign, entry)) continue;
    const remedy =
      foreign.kind === "part" ? "lockstep convert reads it with its scales" : "lockstep verify tells more";
    throw new FileError(`${file.path}: tensor "${foreign.name}": ${foreign.why}; ${remedy}`);
  }
}
