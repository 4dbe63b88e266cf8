/** What a kernel may have done wrong with scales, one suspect each: the scale of a block as the wrong kernel computes it. */
import { blockFormat } from "../../../../src/formats/block.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import type { CopyEvidence } from "../copies.js";
import type { ScaleSuspect } from "./scale-suspect.js";
import { ofAmaxes } from "./scales-by-amax.js";
import { ofChanges, ofPlaces } from "./scales-by-change.js";
import { ofConstants } from "./scales-by-constant.js";
import { ofFormats, ofSpecs } from "./scales-by-rule.js";

/** Every suspect for the scales of a spec, the likely ones first. Of the copies, scales that are constant are read. */
export function scaleSuspects(spec: QuantizeSpec, copies: readonly CopyEvidence[]): readonly ScaleSuspect[] {
  if (blockFormat(spec.quantizer).scaleSource === "given")
    return [...ofChanges(spec), ...ofConstants(copies)];
  return [
    ...ofSpecs(spec),
    ...ofAmaxes(spec),
    ...ofPlaces(),
    ...ofChanges(spec),
    ...ofConstants(copies),
    ...ofFormats(spec),
  ];
}
