/** The quantizers of this library as targets of a conversion. */
import { BLOCK_FORMAT_NAMES, type BlockFormatName, hasGivenScale } from "../../../formats/block.js";

const PREFIX = "lockstep-";

/** The quantizers whose form weights can be converted to; those that are given a scale need a history of amaxes. */
const OWN_QUANTIZERS = BLOCK_FORMAT_NAMES.filter((quantizer) => !hasGivenScale({ quantizer }));

/** The targets by their names. */
export const LOCKSTEP_TARGETS: ReadonlyMap<string, BlockFormatName> = new Map(
  OWN_QUANTIZERS.map((name) => [PREFIX + name, name]),
);
