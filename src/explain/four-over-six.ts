/** 4over6: the choice between two scales of a block (numerics.md §5.8). */
import { factsOf, valueOfCode } from "../formats/derive.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import { roundTo } from "./rounding.js";
import { blockScale, encodeScale, type RuleResult } from "./scale-rules.js";
import { add, div, mul, Steps } from "./steps.js";

/** One of the two scales and the block's error under it. */
export interface ScaleCandidate {
  /** The value to which the amax of the block is mapped. */
  readonly maps: 6 | 4;
  /** The value of the stored scale. */
  readonly scale: number;
  /** The stored code of the scale. */
  readonly code: number;
  /** The factor of elements. */
  readonly multiplier: number;
  /** The sum of the errors of the block, in f32. */
  readonly error: number;
}

/** The scale of a block, and both candidates. */
export interface FourOverSixResult extends RuleResult {
  readonly candidates: readonly [six: ScaleCandidate, four: ScaleCandidate];
}

interface Block {
  readonly steps: Steps;
  readonly amax: number;
  readonly tensorAmax: number;
  /** The values of the block, line by line as their errors are summed. */
  readonly lines: readonly (readonly number[])[];
  readonly spec: Pick<QuantizeSpec, "format" | "fourOverSix" | "e4m3Max">;
}

const E4M3_MAX = factsOf("e4m3").max;
const LARGEST = 6;
/** The number of lines of a square tile. */
const TILE_LINES = 16;

/** Chooses the scale with the smaller error. A tie goes to 6. */
export function fourOverSix(block: Block): FourOverSixResult {
  const { steps, amax, tensorAmax, spec } = block;
  const full = LARGEST * spec.e4m3Max;
  const s = encodeScale(steps, tensorAmax, full);
  const base = steps.add("base", "(amax ⊘ 6) ⊗ S", mul(div(amax, LARGEST), s));
  const six = candidate(block, 6, base, s);
  const four = candidate(block, 4, mul(base, 1.5), s);
  steps.add("error6", "sum of errors with raw = base", six.error);
  steps.add("error4", "sum of errors with raw = base ⊗ 1.5", four.error);
  const isFour = four.error < six.error;
  const raw = isFour ? mul(base, 1.5) : base;
  const formula = `${isFour ? "base ⊗ 1.5, since error4 is smaller" : "base, since error4 is not smaller"}, at most 448`;
  const chosen = blockScale(steps, steps.add("raw", formula, Math.min(raw, E4M3_MAX)), s);
  return { ...chosen, candidates: [six, four] };
}

function candidate(block: Block, maps: 6 | 4, raw: number, s: number): ScaleCandidate {
  const { scale, code, multiplier } = blockScale(new Steps(), Math.min(raw, E4M3_MAX), s);
  return { maps, scale, code, multiplier, error: blockError(block, scale, multiplier) };
}

/**
 * Sums the errors of each line in order, then the sums of a tile's lines in pairs at distances 8, 4, 2 and 1. Lines outside the
 * matrix add nothing.
 */
function blockError({ lines, tensorAmax, spec }: Block, scale: number, multiplier: number): number {
  const { format, fourOverSix: metric, e4m3Max } = spec;
  const errorOf = (x: number): number => {
    const code = roundTo(mul(x, multiplier), { format, rounding: "tiesToEven", overflow: "saturate" }).code;
    const restored = div(mul(mul(valueOfCode(format, code), scale), tensorAmax), LARGEST * e4m3Max);
    const error = Math.fround(restored - x);
    return metric === "mse" ? mul(error, error) : Math.abs(error);
  };
  const sums = lines.map((line) => line.reduce((sum, x) => add(sum, errorOf(x)), 0));
  for (let distance = sums.length > 1 ? TILE_LINES / 2 : 0; distance >= 1; distance /= 2)
    for (let i = 0; i < distance; i++) sums[i] = add(sums[i] ?? 0, sums[i + distance] ?? 0);
  return sums[0] ?? 0;
}
