/** The angular frequencies of rotary embeddings, and rules that scale them for sequences longer than in training. */
import { ArgumentError } from "../../errors.js";
import {
  atLeastZero,
  boolean,
  type Domain,
  describe,
  finite,
  integer,
  listOf,
  membersOfPlain,
  needed,
  oneOf,
  optionsOf,
} from "../../options.js";
import { exp, fixed, log, ratio, toNumber } from "./fixed-point.js";

/** Divides all frequencies by a factor. */
export interface LinearRotaryScaling {
  /** The rule. */
  readonly kind: "linear";
  /** A number above 0. */
  readonly factor: number;
}

/** Llama 3's rule: divides low frequencies by a factor, keeps high ones, and interpolates between them. */
export interface Llama3RotaryScaling {
  /** The rule. */
  readonly kind: "llama3";
  /** A number above 0, by which low frequencies are divided. */
  readonly factor: number;
  /** Wavelengths above `originalMaxPositionEmbeddings / lowFreqFactor` are low frequencies. */
  readonly lowFreqFactor: number;
  /** Wavelengths below `originalMaxPositionEmbeddings / highFreqFactor` are high frequencies. Above `lowFreqFactor`. */
  readonly highFreqFactor: number;
  /** The number of positions in training. */
  readonly originalMaxPositionEmbeddings: number;
}

/** YaRN: divides low frequencies by a factor, with a linear ramp over the pairs, and scales cosines and sines. */
export interface YarnRotaryScaling {
  /** The rule. */
  readonly kind: "yarn";
  /** A number above 0, by which low frequencies are divided. */
  readonly factor: number;
  /** The number of positions in training. */
  readonly originalMaxPositionEmbeddings: number;
  /** Frequencies with at least this number of turns in these positions are kept. Default 32. */
  readonly betaFast?: number | undefined;
  /** Frequencies with at most this number of turns in these positions are divided. Default 1. */
  readonly betaSlow?: number | undefined;
  /** The factor of cosines and sines. Default: 0.1 ln(factor) + 1, or 1 for a factor up to 1. */
  readonly attentionFactor?: number | undefined;
  /** Whether the ends of the ramp are rounded to whole pairs. Default true. */
  readonly truncate?: boolean | undefined;
}

/** Divides the frequency of each pair by a factor of its own. */
export interface FactorsRotaryScaling {
  /** The rule. */
  readonly kind: "factors";
  /** Numbers above 0, one for each pair of rotated elements. */
  readonly factors: readonly number[];
}

/** A rule that scales the frequencies of a rotary embedding. */
export type RotaryScaling =
  | LinearRotaryScaling
  | Llama3RotaryScaling
  | YarnRotaryScaling
  | FactorsRotaryScaling;

const positive: Domain = (caller, name, value) => {
  const number = finite(caller, name, value) as number;
  if (number > 0) return number;
  throw new ArgumentError(`${caller}: ${name} is ${describe(value)}; it must be above 0`);
};

const POSITIONS = { originalMaxPositionEmbeddings: needed(integer(1)) } as const;
const FACTOR = { factor: needed(positive) } as const;

const CHECKS = {
  linear: optionsOf<LinearRotaryScaling>({ kind: needed(oneOf(["linear"])), ...FACTOR }, "scaling"),
  llama3: optionsOf<Llama3RotaryScaling>(
    {
      kind: needed(oneOf(["llama3"])),
      ...FACTOR,
      ...POSITIONS,
      lowFreqFactor: needed(positive),
      highFreqFactor: needed(positive),
    },
    "scaling",
  ),
  yarn: optionsOf<YarnRotaryScaling>(
    {
      kind: needed(oneOf(["yarn"])),
      ...FACTOR,
      ...POSITIONS,
      betaFast: positive,
      betaSlow: positive,
      attentionFactor: atLeastZero,
      truncate: boolean,
    },
    "scaling",
  ),
  factors: optionsOf<FactorsRotaryScaling>(
    { kind: needed(oneOf(["factors"])), factors: needed(listOf(positive)) },
    "scaling",
  ),
} as const;

const kindName = oneOf(Object.keys(CHECKS));

/** Checks a rule. */
export const rotaryScaling: Domain = (caller, name, value) => {
  const members = membersOfPlain(caller, name, value);
  if (!members)
    throw new ArgumentError(`${caller}: ${name} is ${describe(value)}; it must be an object with a kind`);
  const fields = Object.fromEntries(members);
  const kind = kindName(caller, `${name}.kind`, fields.kind) as RotaryScaling["kind"];
  const rule = (CHECKS[kind] as (caller: string, options: object, name?: string) => RotaryScaling)(
    caller,
    fields,
    name,
  );
  if (rule.kind === "llama3" && rule.lowFreqFactor >= rule.highFreqFactor)
    throw new ArgumentError(
      `${caller}: ${name}.lowFreqFactor is ${rule.lowFreqFactor} and highFreqFactor ${rule.highFreqFactor}; the latter must be larger`,
    );
  return rule;
};

/** The frequencies of pairs, in radians per position, and the factor of cosines and sines. */
export interface Frequencies {
  readonly inverse: Float32Array;
  readonly factor: number;
}

/**
 * Returns the frequencies of `width` rotated elements (numerics.md §10.7). Throws `ArgumentError` if there are not as many
 * factors as pairs.
 */
export function frequenciesOf(width: number, base: number, scaling: RotaryScaling | undefined): Frequencies {
  const logarithm = log(fixed(base));
  const frequencies = Array.from({ length: width / 2 }, (_, i) =>
    toNumber(exp(ratio(-logarithm, BigInt(2 * i), BigInt(width)))),
  );
  if (!scaling) return { inverse: Float32Array.from(frequencies), factor: 1 };
  if (scaling.kind === "linear")
    return { inverse: Float32Array.from(frequencies, (each) => each / scaling.factor), factor: 1 };
  if (scaling.kind === "llama3")
    return { inverse: Float32Array.from(frequencies, (each) => llama3(each, scaling)), factor: 1 };
  if (scaling.kind === "yarn") return yarn(frequencies, { base, scaling });
  const { factors } = scaling;
  if (factors.length !== frequencies.length)
    throw new ArgumentError(
      `RotaryPositionEmbedding: scaling.factors has ${factors.length} numbers; ${width} rotated elements are ${width / 2} pairs`,
    );
  return { inverse: Float32Array.from(frequencies, (each, i) => each / (factors[i] as number)), factor: 1 };
}

function llama3(frequency: number, scaling: Llama3RotaryScaling): number {
  const { factor, lowFreqFactor: low, highFreqFactor: high, originalMaxPositionEmbeddings } = scaling;
  const wavelength = (2 * Math.PI) / frequency;
  if (wavelength > originalMaxPositionEmbeddings / low) return frequency / factor;
  if (wavelength < originalMaxPositionEmbeddings / high) return frequency;
  const share = (originalMaxPositionEmbeddings / wavelength - low) / (high - low);
  return ((1 - share) * frequency) / factor + share * frequency;
}

function yarn(
  frequencies: readonly number[],
  { base, scaling }: { readonly base: number; readonly scaling: YarnRotaryScaling },
): Frequencies {
  const { factor, originalMaxPositionEmbeddings, betaFast = 32, betaSlow = 1, truncate = true } = scaling;
  const width = 2 * frequencies.length;
  /** Returns the pair, as a real number, that makes this number of turns in the positions of training. */
  const rotationIndex = (rotations: number): number =>
    (width * ln(originalMaxPositionEmbeddings / (rotations * 2 * Math.PI))) / (2 * ln(base));
  const ends = [rotationIndex(betaFast), rotationIndex(betaSlow)] as const;
  const firstIndex = Math.max(truncate ? Math.floor(ends[0]) : ends[0], 0);
  const end = Math.min(truncate ? Math.ceil(ends[1]) : ends[1], width - 1);
  const lastIndex = firstIndex === end ? end + 0.001 : end;
  const inverse = Float32Array.from(frequencies, (frequency, i) => {
    const weight = 1 - Math.min(Math.max((i - firstIndex) / (lastIndex - firstIndex), 0), 1);
    return (frequency / factor) * (1 - weight) + frequency * weight;
  });
  const { attentionFactor = factor <= 1 ? 1 : 0.1 * ln(factor) + 1 } = scaling;
  return { inverse, factor: Math.fround(attentionFactor) };
}

/** Returns the f64 nearest to the natural logarithm. */
function ln(x: number): number {
  return toNumber(log(fixed(x)));
}
