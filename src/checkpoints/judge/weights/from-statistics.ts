/** Derives findings about scales that do not fit the codes from the statistics of a weight. */
import { CODE_TYPES } from "../../stored/code-types.js";
import { conventionOf } from "../../stored/conventions.js";
import type { GlobalScale } from "../../stored/scales.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import { type Finding, type FindingName, finding } from "../findings.js";
import type { Correlation } from "../statistics/correlation.js";
import { SIGNIFICANT, type Statistics } from "../statistics/statistics.js";

/**
 * The values of trained weights are smaller than `large`. Scales are inverted if values exceed `large` and reciprocal scales give
 * values below `small`.
 */
const MAGNITUDES = { large: 64, small: 16 } as const;
/** The minimum coefficient of a correlation, and its minimum significance in standard errors, that count as evidence. */
const EVIDENCE = { coefficient: 0.3, significance: 6 } as const;
/** The minimum number of equal scales that is not a coincidence. */
const MIN_CONSTANT = 16;

/** The minimum number of blocks with a NaN code in each that is not a coincidence. */
const MIN_FNUZ = 4;

type Test = (weight: QuantizedWeight, statistics: Statistics, scales: GlobalScale) => string | undefined;

const number = (value: number): string => Number(value.toPrecision(4)).toString();

/** The stored scale whose effective value is 1. */
const unit = ({ type }: QuantizedWeight): number => 1 / CODE_TYPES[type].factor;

const isE8m0 = ({ scale }: QuantizedWeight): boolean => ["U8", "F8_E8M0"].includes(scale.entry.dtype);

/**
 * Whether blocks with larger scales have smaller codes in the opposite scale layout but not in the stored layout. In the right
 * layout, they have smaller codes.
 */
function fitsOppositeLayout(storedLayout: Correlation, { coefficient, significance }: Correlation): boolean {
  const isClear = coefficient < -EVIDENCE.coefficient / 2 && significance < -EVIDENCE.significance;
  const isStoredUnclear = storedLayout.significance >= -SIGNIFICANT;
  return isClear && isStoredUnclear && significance <= storedLayout.significance - EVIDENCE.significance;
}

/**
 * As `fitsOppositeLayout`, within rows. Scales and codes of the same block correlate strongly there, so the correlation in the
 * stored layout must be weaker than half of the correlation in the opposite layout.
 */
function fitsOppositeLayoutWithinRows(storedLayout: Correlation, oppositeLayout: Correlation): boolean {
  const isClear =
    oppositeLayout.coefficient < -EVIDENCE.coefficient &&
    oppositeLayout.significance < -EVIDENCE.significance;
  const isStronger = oppositeLayout.significance <= storedLayout.significance - EVIDENCE.significance;
  return isClear && isStronger && oppositeLayout.coefficient < 2 * storedLayout.coefficient;
}

/** For each finding, a test that returns a description, or undefined if the finding does not apply. */
const TESTS: Readonly<Partial<Record<FindingName, Test>>> = {
  "scale-not-finite": ({ scale }, { scale: { notFinite, count } }, { storedGlobal }) =>
    notFinite > 0
      ? `${notFinite} of ${count} scales in ${scale.entry.name} are NaN or infinite`
      : storedGlobal !== undefined && !Number.isFinite(storedGlobal)
        ? `the global scale is ${storedGlobal}`
        : undefined,
  "scale-negative": ({ scale }, { scale: { negative, count } }, { storedGlobal = 1 }) =>
    negative > 0
      ? `${negative} of ${count} scales in ${scale.entry.name} are negative`
      : storedGlobal < 0
        ? `the global scale is ${storedGlobal}`
        : undefined,
  "scale-zero": (weight, { blocks, scale }, { storedGlobal }) => {
    if (blocks.nonzero === 0) return undefined;
    if (storedGlobal === 0) return "the global scale is 0";
    if (blocks.zeroScaled > 0)
      return `${blocks.zeroScaled} of ${blocks.nonzero} blocks with codes have the scale 0`;
    const zero = 2 ** -127 * unit(weight);
    const isLeast = scale.min === zero && scale.max === zero && scale.notFinite === 0;
    return isE8m0(weight) && isLeast ? `all ${scale.count} scales are the byte 0` : undefined;
  },
  "scale-constant": (weight, { blocks, scale, amax }, { storedGlobal }) => {
    if (scale.min !== scale.max || scale.notFinite > 0 || scale.max <= 0 || blocks.nonzero === 0)
      return undefined;
    const { max } = CODE_TYPES[weight.type];
    const description = `all ${scale.count} scales are ${number(scale.max)}`;
    if (weight.geometry.kind === "whole" || blocks.nonzero === 1)
      return scale.max === 1 && amax >= max ? `the scale is 1, and values reach ${number(amax)}` : undefined;
    const power = scale.powersOfTwo === scale.count;
    if (scale.max === unit(weight) && storedGlobal === undefined && !isE8m0(weight) && blocks.nonzero > 1)
      return description;
    if (power && isE8m0(weight)) {
      const isMany = blocks.nonzero >= 4 * MIN_CONSTANT;
      const isLarge = blocks.nonzero > 1 && amax > MAGNITUDES.large;
      return scale.max === unit(weight) && (isMany || isLarge) ? description : undefined;
    }
    // repacking scales for smaller blocks also gives equal scales, but then some blocks do not reach the largest code
    const isFull = blocks.full === blocks.nonzero;
    const minCount = scale.max === unit(weight) ? 2 : MIN_CONSTANT;
    return (!power || storedGlobal !== undefined) && blocks.nonzero >= minCount && isFull
      ? `${description}, and every block reaches the largest code`
      : undefined;
  },
  "scale-one": ({ geometry }, { scale, amax, blocks }) =>
    geometry.kind === "whole" && scale.max === 1 && blocks.nonzero > 0
      ? `the scale is 1; values reach ${number(amax)}`
      : undefined,
  "scale-encoded": ({ scale: { entry } }, { scale, amax, areExponents }) =>
    !["U8", "F8_E8M0", "F8_E4M3"].includes(entry.dtype) &&
    scale.max >= MAGNITUDES.large &&
    amax > 0 &&
    areExponents
      ? `all ${scale.count} scales are whole numbers from ${scale.min} to ${scale.max}`
      : undefined,
  "scale-missing": ({ convention, codes }, { amax, inverse }, { storedGlobal }) => {
    const { global } = conventionOf(convention);
    const isOut = amax > MAGNITUDES.large && inverse.amax < MAGNITUDES.small;
    return global?.optional && storedGlobal === undefined && isOut
      ? `${codes.entry.name} has no ${global.suffix} beside it, and values reach ${number(amax)} without`
      : undefined;
  },
  "scale-inverted": (
    { convention },
    { amax, rms, inverse, correlation, blocks },
    { storedGlobal, isDivisor },
  ) => {
    if (blocks.nonzero === 0) return undefined;
    const { large, small } = MAGNITUDES;
    if (storedGlobal !== undefined && storedGlobal > 0) {
      const inverseAmax = isDivisor
        ? amax * storedGlobal * storedGlobal
        : amax / (storedGlobal * storedGlobal);
      const { role, suffix } = conventionOf(convention).global ?? {};
      if (amax > large && inverseAmax < small)
        return `values reach ${number(amax)}; with the reciprocal of ${suffix}, which is a ${role}, ${number(inverseAmax)}`;
      return undefined;
    }
    if (amax > large && inverse.amax < small)
      return `values reach ${number(amax)}; with reciprocal scales ${number(inverse.amax)}`;
    const { coefficient, significance } = correlation;
    return coefficient > EVIDENCE.coefficient && significance > EVIDENCE.significance && rms > inverse.rms
      ? `blocks of larger scales have larger codes (correlation ${coefficient.toFixed(2)} in ${correlation.count} blocks); of right ones, smaller`
      : undefined;
  },
  "scales-swizzled": ({ geometry }, { correlation, oppositeCorrelation, withinRows }) => {
    const [actual, declared] = geometry.swizzled ? ["plain", "swizzled"] : ["swizzled", "plain"];
    const describeFit = (storedLayout: Correlation, oppositeLayout: Correlation, scope: string): string =>
      `scales fit their blocks if they are read as ${actual} (correlation ${oppositeLayout.coefficient.toFixed(2)}${scope}), not as ${declared} (${storedLayout.coefficient.toFixed(2)})`;
    if (oppositeCorrelation && fitsOppositeLayout(correlation, oppositeCorrelation))
      return describeFit(correlation, oppositeCorrelation, "");
    if (
      !withinRows?.oppositeLayout ||
      !fitsOppositeLayoutWithinRows(withinRows.own, withinRows.oppositeLayout)
    )
      return undefined;
    return describeFit(withinRows.own, withinRows.oppositeLayout, " within rows");
  },
  // codes of fewer bits reach the largest code in every row under any scale
  "scale-flattened": ({ geometry, shape, type }, { rows, scale }) =>
    CODE_TYPES[type].bits >= 8 &&
    geometry.kind === "whole" &&
    shape.length >= 2 &&
    rows.nonzero >= 8 &&
    rows.full === rows.nonzero &&
    scale.count === 1
      ? `all ${rows.nonzero} rows reach the largest code under one scale`
      : undefined,
  "scale-rounded": ({ geometry, type }, { blocks, scale }) => {
    const minBlocks = geometry.kind === "tile" ? 4 : MIN_CONSTANT;
    const powers = scale.powersOfTwo === scale.count;
    return CODE_TYPES[type].fn &&
      geometry.kind !== "whole" &&
      powers &&
      blocks.nonzero >= minBlocks &&
      blocks.full === blocks.nonzero
      ? `all ${scale.count} scales are powers of two, and all ${blocks.nonzero} blocks reach the largest code`
      : undefined;
  },
  "codes-fnuz": ({ type }, { nans, elements, counts, blocks }) =>
    CODE_TYPES[type].fn &&
    nans < elements / 2 &&
    counts[0x80] === 0 &&
    blocks.nonzero >= MIN_FNUZ &&
    blocks.withNaN === blocks.nonzero &&
    // a larger number of NaN codes comes from values that overflowed
    nans <= 2 * blocks.nonzero
      ? `every block has a code of NaN and none has -0: 0x7F is the largest code of e4m3fnuz`
      : undefined,
  "codes-nan": (_, { nans, elements }) => (nans > 0 ? `${nans} of ${elements} codes are NaN` : undefined),
  "codes-zero": (_, { elements, zeros }) =>
    elements > 0 && zeros === elements ? `all ${elements} codes are zero` : undefined,
};

/** For each finding, the findings that it makes redundant. */
const REPLACED: Readonly<Partial<Record<FindingName, readonly FindingName[]>>> = {
  "codes-fnuz": ["codes-nan"],
  "scale-encoded": ["scale-constant", "scale-inverted", "scale-rounded"],
  "scale-missing": ["scale-inverted", "scale-constant"],
  "scale-constant": ["scale-one", "scale-inverted", "scale-rounded", "scale-flattened"],
  "scale-one": ["scale-inverted"],
};

/** Findings from circumstantial evidence. They are ignored if the values are known to be right. */
export const CIRCUMSTANTIAL: ReadonlySet<FindingName> = new Set([
  "scale-constant",
  "scale-encoded",
  "scale-missing",
  "scale-one",
  "scale-inverted",
  "scales-swizzled",
  "scale-flattened",
  "scale-rounded",
  "codes-fnuz",
]);

/** Findings about the codes and scales of a weight. `isExplained`: leaves out circumstantial findings. */
export function judgeStatistics(
  weight: QuantizedWeight,
  statistics: Statistics,
  scales: GlobalScale,
  isExplained = false,
): Finding[] {
  const testNames = Object.keys(TESTS) as FindingName[];
  const names = testNames.filter((name) => !isExplained || !CIRCUMSTANTIAL.has(name));
  const reasons = new Map<FindingName, string>();
  for (const name of names) {
    const description = TESTS[name]?.(weight, statistics, scales);
    if (description !== undefined) reasons.set(name, description);
  }
  for (const [name, redundant] of Object.entries(REPLACED) as [FindingName, readonly FindingName[]][])
    if (reasons.has(name)) for (const redundantName of redundant) reasons.delete(redundantName);
  return [...reasons].map(([name, description]) => finding(name, weight.name, description));
}
