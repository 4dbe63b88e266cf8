/** Mistakes in scales: each suspect computes the scale of a block as the wrong kernel does. */
import { blockFormat } from "../../../../src/formats/block.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import type { CopyEvidence } from "../copies.js";
import type { ScaleSuspect } from "./scale-suspect.js";
import { ofAmaxes } from "./scales-by-amax.js";
import { ofChanges, ofPlaces } from "./scales-by-change.js";
import { ofConstants } from "./scales-by-constant.js";
import { ofFormats, ofSpecs } from "./scales-by-rule.js";

/** Every suspect for the scales of a spec, the likely ones first. Constant scales are read from the copies. */
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
