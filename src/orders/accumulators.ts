/** The accumulators that a kernel may declare, one row each. A row bounds the error of one addition. */
import { DATAPATHS, type DatapathRow } from "../formats/datapath.js";

/** A row of `ACCUMULATORS`. */
export interface AccumulatorRow {
  /** A description in plain words. */
  readonly words: string;
  /** The largest error of one addition, relative to the result or, for a tensor core, to the largest term of its step. */
  readonly unit: number;
  /** Whether additions and products round to nearest in f32, which bounds an error by half a unit of the last place. */
  readonly nearest: boolean;
  /** Whether a product may be rounded to f32 before it is added. */
  readonly roundsProducts: boolean;
  /** Sums below 2^exactBits times the lowest bit of all terms are exact. */
  readonly exactBits: number;
  /** The number of terms after which a partial sum is added to a total in f32. 0: never. */
  readonly promotion: number;
}

/** The unit roundoff of f32. */
export const F32_UNIT = 2 ** -24;

/** The accumulator of a tensor core: a step truncates each term by 2^-alignBits and its sum by 2^-fractionBits. */
function truncating(description: string, { dotAdd }: DatapathRow, promotion = 0): AccumulatorRow {
  const { alignBits = 0, fractionBits = 0 } = dotAdd ?? {};
  const unit = 2 ** -fractionBits + 2 * 2 ** -alignBits;
  // the exponent by which a product is aligned may be one below the exponent of its value
  const exactBits = Math.min(fractionBits + 1, alignBits - 1);
  return { words: description, unit, nearest: false, roundsProducts: true, exactBits, promotion };
}

/** Every accumulator that a kernel may declare, by name. */
export const ACCUMULATORS = {
  f32: {
    words: "f32, rounded to nearest",
    unit: F32_UNIT,
    nearest: true,
    roundsProducts: true,
    exactBits: 24,
    promotion: 0,
  },
  "tensor-core": truncating("f32 as tensor cores add: terms and sums are truncated", DATAPATHS["ada-half"]),
  f64: {
    words: "f64, rounded to f32 once",
    unit: 2 ** -53,
    nearest: false,
    roundsProducts: false,
    exactBits: 53,
    promotion: 0,
  },
  "hopper-fp8": truncating(
    "Hopper's FP8 sums of 13 fraction bits, promoted to f32 every 128 elements",
    DATAPATHS["hopper-fp8"],
    128,
  ),
  "hopper-fp8-fast": truncating(
    "Hopper's FP8 sums of 13 fraction bits, without promotion",
    DATAPATHS["hopper-fp8"],
  ),
} as const satisfies Record<string, AccumulatorRow>;

/** The name of an accumulator, a key of `ACCUMULATORS`. */
export type AccumulatorName = keyof typeof ACCUMULATORS;

/** The names of all accumulators. */
export const ACCUMULATOR_NAMES = Object.keys(ACCUMULATORS) as readonly AccumulatorName[];
