/** The quantizers of this library as targets of a conversion. */
import { BLOCK_FORMAT_NAMES, type BlockFormatName, hasGivenScale } from "../../../formats/block.js";

/** The name of a quantizer of this library as a target. */
export type LockstepTarget = `lockstep-${BlockFormatName}`;

/** The quantizers by the names of their targets. Excludes quantizers that take their scale as an argument (delayed scaling). */
export const LOCKSTEP_TARGETS: ReadonlyMap<LockstepTarget, BlockFormatName> = new Map(
  BLOCK_FORMAT_NAMES.filter((quantizer) => !hasGivenScale({ quantizer })).map((quantizer) => [
    `lockstep-${quantizer}` as const,
    quantizer,
  ]),
);
