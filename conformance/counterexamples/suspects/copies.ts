/** One copy of each quantization of the evidence, as blocks and elements. */

import type { RuleResult } from "../../../src/explain/scale-rules.js";
import { blockFormat } from "../../../src/formats/block.js";
import { DIRECTIONS, type Direction } from "../../../src/tensor/quantized.js";
import type { Answer } from "../../operations/operation.js";
import type { QuantizeCase } from "../../operations/quantize/quantize.js";
import { differenceOf } from "../../values/difference.js";
import type { Evidence } from "./suspect.js";
import { View } from "./view.js";

/** A copy in the subject's answer. */
export interface CopyEvidence {
  readonly view: View;
  readonly evidence: Evidence<QuantizeCase>;
  /** The stored scales. */
  readonly scales: ArrayLike<number>;
  /** The stored codes, one for each element. */
  readonly codes: ArrayLike<number>;
}

/** The parts of a copy. */
export type CopyPart = "data" | "scaleInv" | "amax";

/**
 * The name of a copy's amax. An amax that both copies share, as in delayed scaling, belongs to the rowwise copy if there is one.
 */
export function amaxName(expected: Answer, direction: Direction): string {
  const isFirst = direction === "rowwise" || !("rowwise.data" in expected);
  return "amax" in expected && isFirst ? "amax" : `${direction}.amax`;
}

/** Whether a part of a copy differs from the expected one. False if either is absent. */
export function isWrong(
  { actual, expected }: Evidence<QuantizeCase>,
  direction: Direction,
  part: CopyPart,
): boolean {
  const name = part === "amax" ? amaxName(expected, direction) : `${direction}.${part}`;
  const [ours, right] = [actual[name], expected[name]];
  return !!ours && !!right && (ours.data.length !== right.data.length || !!differenceOf(ours, right));
}

/** The directions of the copies that differ from the expected ones. */
export function wrongDirections(evidence: Evidence<QuantizeCase>): readonly Direction[] {
  return DIRECTIONS.filter((direction) =>
    (["data", "scaleInv", "amax"] as const).some((part) => isWrong(evidence, direction, part)),
  );
}

/** The copy in one answer. Undefined if it depends on more than the input, or has unexpected sizes. */
export function copyOf(evidence: Evidence<QuantizeCase>, direction: Direction): CopyEvidence | undefined {
  const { input, actual } = evidence;
  const [data, scales] = [actual[`${direction}.data`], actual[`${direction}.scaleInv`]];
  if (!data || !scales || input.noop === 1 || input.part || input.scaleLayout !== "logical") return undefined;
  const view = new View(input, direction);
  if (view.blocks.length !== scales.codes.length) return undefined;
  return { view, evidence, scales: scales.codes, codes: data.codes };
}

/** The scales of all blocks by a function. Undefined if the function is undefined for one of them. */
export function scalesBy(
  view: View,
  of: (view: View, block: number) => RuleResult | undefined,
): readonly RuleResult[] | undefined {
  const scales: RuleResult[] = [];
  for (let block = 0; block < view.blocks.length; block++) {
    const scale = of(view, block);
    if (!scale) return undefined;
    scales.push(scale);
  }
  return scales;
}

/** Whether two stored scales are equal; NaN is a class in f32. */
export function isSameScale({ spec }: View, a: number, b: number): boolean {
  return a === b || (blockFormat(spec.quantizer).scale === "f32" && isNaNBits(a) && isNaNBits(b));
}

const isNaNBits = (bits: number): boolean => (bits & 0x7fffffff) > 0x7f800000;
