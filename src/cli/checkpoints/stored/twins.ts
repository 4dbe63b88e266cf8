/** Weights of blocks as weights of a convention whose codes and scales, byte for byte, have the same values. */
import type { CodeTypeName } from "./code-types.js";
import type { ConventionName } from "./conventions.js";
import type { QuantizedWeight } from "./weight.js";

/**
 * The twins of conventions with doubled codes and halved scales. Bytes that stand for no number in the twin, such as 0x7F of
 * e4m3, do so there; code 8 is minus zero.
 */
const TWINS: Readonly<Partial<Record<ConventionName, ConventionName>>> = {
  "gguf-mxfp4": "torchao-mxfp4",
  "gguf-nvfp4": "torchao-nvfp4",
  "gguf-nvfp4-bare": "torchao-nvfp4-single",
};
const TYPE: CodeTypeName = "e2m1";

/** A weight as its twin has it; itself if its convention has none. */
export function twinOf(weight: QuantizedWeight): QuantizedWeight {
  const convention = TWINS[weight.convention];
  return convention === undefined ? weight : { ...weight, convention, type: TYPE };
}
