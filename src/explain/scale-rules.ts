/** The steps of each scale rule, from an amax to the stored scale and the multiplier (numerics.md §2.3, §3.6, §4.1, §5.1). */
import { FLT_MAX, factsOf, lastCode, valueOfCode } from "../formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../formats/scalar.js";
import type { ScaleRuleName } from "../formats/scale-rules.js";
import type { WideDType } from "../tensor/shape.js";
import { f32Bits, f32OfBits, floorLog2 } from "./binary.js";
import { type RoundingExplanation, roundTo } from "./rounding.js";
import { add, div, epsilonOf, mul, roundedTo, type Steps } from "./steps.js";

/** The inputs of a rule. */
export interface RuleInput {
  readonly steps: Steps;
  /** The amax of the block, or of the tensor if it has one scale. */
  readonly amax: number;
  /** The element format. */
  readonly format: ScalarFormat;
  readonly pow2: boolean;
  readonly epsilon: number;
  /** The type of the input. */
  readonly dtype: WideDType;
  /** The amax of the whole tensor, for two-level scales. */
  readonly tensorAmax: number;
  /** The scale that the rule stores for the tensor (tensor-scale.ts); 1 if it stores none. */
  readonly tensorScale: number;
  /** Whether elements are divided, not multiplied. */
  readonly divides: boolean;
  /** Whether there is one scale for the whole tensor. */
  readonly isWide: boolean;
}

/** A scale, and the values that are derived from it. */
export interface RuleResult {
  /** The value of the stored scale. */
  readonly scale: number;
  /** The stored bits: the bits of an f32, or a code of e8m0 or e4m3. */
  readonly code: number;
  /** The factor m by which elements are multiplied. */
  readonly multiplier: number;
  /** The divisor of elements, where it is not the stored scale. */
  readonly divisor?: number;
  /** The rounding of the scale, where a format other than f32 rounds it. */
  readonly rounding?: RoundingExplanation;
}

type Rule = (input: RuleInput) => RuleResult;

/** The result of a rule whose scale is stored as f32. */
function f32Scale(scale: number, multiplier: number): RuleResult {
  return { scale, code: f32Bits(scale), multiplier };
}

/** The amax, or the epsilon, rounded to `dtype`, if the amax is smaller. */
function amaxOrEpsilon({ steps, amax, epsilon }: RuleInput, dtype: WideDType = "f32"): number {
  const least = roundedTo(Math.fround(epsilon), dtype);
  const rounding = dtype === "f32" ? "" : `, rounded to ${dtype}`;
  return amax < least ? steps.add("amax", `amaxEpsilon${rounding}, since amax is smaller`, least) : amax;
}

/** s = 1 / m, where m = max / amax multiplies elements. */
const f32: Rule = (input) => {
  const { steps, format, pow2, dtype, isWide } = input;
  const a = amaxOrEpsilon(input);
  const { max } = factsOf(format);
  if (!(a > 0 && a < Infinity)) {
    const m = steps.add("m", a === 0 ? "1, since amax is 0" : "1, since amax is infinite", 1);
    return f32Scale(steps.add("s", "1 ⊘ m", 1), m);
  }
  let m = steps.add("m", "max ⊘ amax", div(max, a));
  if (m === Infinity) {
    const largest = isWide || dtype === "f32" ? FLT_MAX : factsOf(dtype).max;
    m = steps.add("m", "the largest finite value, since the quotient overflows", largest);
  }
  if (pow2) m = steps.add("m", "m without its mantissa: a power of two", f32OfBits(f32Bits(m) & 0xff800000));
  return f32Scale(steps.add("s", "1 ⊘ m", div(1, m)), m);
};

/** s = amax / max, then adjusted by `after`. */
function quotient(
  after: (input: RuleInput, scale: number) => number,
  name = "max",
  top: (format: ScalarFormat) => number = (format) => factsOf(format).max,
): Rule {
  return (input) => {
    const { steps, format } = input;
    const s = after(input, steps.add("s", `amax ⊘ ${name}`, div(amaxOrEpsilon(input), top(format))));
    return f32Scale(s, steps.add("m", "1 ⊘ s", div(1, s)));
  };
}

function typed({ steps, dtype }: RuleInput, s: number): number {
  return dtype === "f32" ? s : steps.add("s", `s, rounded to ${dtype}`, roundedTo(s, dtype));
}

function powerUp({ steps }: RuleInput, s: number): number {
  const power = (f32Bits(s) + 0x007fffff) & 0x7f800000;
  const bits = Math.min(Math.max(power, 0x00800000), 0x7f000000);
  return steps.add("s", "the least power of two from s, from 2^-126 to 2^127", f32OfBits(bits));
}

/** An e8m0 scale whose multiplier is its reciprocal. */
function e8m0Scale(steps: Steps, code: number, formula: string): RuleResult {
  const scale = valueOfCode("e8m0", code);
  steps.add("code", formula, code);
  return { scale, code, multiplier: steps.add("m", "2^(127 - code)", 1 / scale) };
}

/** The smallest power of two that is at least p, as e8m0. */
function upFrom(steps: Steps, p: number): RuleResult {
  const rounding = roundTo(p, { format: "e8m0", rounding: "towardPositive", overflow: "saturate" });
  return { ...e8m0Scale(steps, rounding.code, "e8m0 of p, rounded up"), rounding };
}

const e8m0UpLog2: Rule = (input) => {
  const { steps, amax, format } = input;
  const p = steps.add("p", "amax ⊘ max", div(amax, factsOf(format).max));
  if (p === 0 || p === Infinity) return upFrom(steps, p);
  const log = steps.add("l", "fl(log2 p)", Math.fround(Math.log2(p)));
  const code = 127 + Math.min(Math.max(Math.ceil(log), -127), 127);
  return e8m0Scale(steps, code, "127 + ceil(l), from 0 to 254");
};

const e8m0UpNormal: Rule = ({ steps, amax, format }) => {
  const p = steps.add("p", "amax ⊘ max", div(amax, factsOf(format).max));
  if (p > 0) return upFrom(steps, steps.add("p", "p, at least 2^-126", Math.max(p, 2 ** -126)));
  steps.add("code", "0, since p is 0", 0);
  return { scale: valueOfCode("e8m0", 0), code: 0, multiplier: steps.add("m", "0, since p is 0", 0) };
};

const e8m0FloorLog2: Rule = (input) => {
  const { steps, amax, format } = input;
  if (amax === 0 || amax === Infinity) return byExponent()(input);
  const log = steps.add("l", "fl(log2 amax)", Math.fround(Math.log2(amax)));
  const { maxExponent } = factsOf(format);
  const code = 127 + Math.floor(log) - maxExponent;
  if (code >= 0) return e8m0Scale(steps, code, `127 + floor(l) - ${maxExponent}`);
  steps.add("code", `127 + floor(l) - ${maxExponent}, modulo 256`, code + 256);
  const scale = valueOfCode("e8m0", code + 256);
  const m = steps.add("m", "2^(127 - code), from 2^-127", Math.max(2 ** (127 - code - 256), 2 ** -127));
  return { scale, code: code + 256, multiplier: m };
};

/** 2^(floor(log2 r) - emax), where r is amax, or amax rounded so that a carry raises its exponent. */
function byExponent(rounded?: (input: RuleInput) => readonly [formula: string, r: number]): Rule {
  return (input) => {
    const { steps, amax, format } = input;
    if (amax === Infinity) return e8m0Scale(steps, 254, "254, since amax is infinite");
    if (amax === 0) return e8m0Scale(steps, 0, "0, since amax is 0");
    const r = rounded ? steps.add("r", ...rounded(input)) : amax;
    const exponent = steps.add("e", `floor(log2 ${rounded ? "r" : "amax"})`, floorLog2(r));
    const { maxExponent } = factsOf(format);
    const code = Math.min(Math.max(127 + exponent - maxExponent, 0), 254);
    return e8m0Scale(steps, code, `127 + e - ${maxExponent}, from 0 to 254`);
  };
}

/** Rounds a positive number to some mantissa bits, ties up. The bits of a subnormal f32 below 2^-126 count as its fraction. */
function roundedToBits(x: number, bits: number): number {
  const ulp = 2 ** (floorLog2(x) - bits);
  return Math.floor(x / ulp + 0.5) * ulp;
}

function shortBits(format: ScalarFormat): number {
  const { exponentBits, mantissaBits } = SCALAR_FORMATS[format];
  return exponentBits + mantissaBits === 5 ? 3 : 1;
}

const even = byExponent(({ amax, format }) => {
  const { mantissaBits } = SCALAR_FORMATS[format];
  return [`amax, rounded to ${mantissaBits} mantissa bits, ties up`, roundedToBits(amax, mantissaBits)];
});

const evenShort: Rule = (input) => {
  const { steps, amax, format } = input;
  const bits = shortBits(format);
  const formula = `amax, rounded to ${bits} mantissa bits, ties up`;
  if (amax === 0 || (amax < Infinity && roundedToBits(amax, bits) < 2 ** 128))
    return byExponent(() => [formula, roundedToBits(amax, bits)])(input);
  steps.add("r", formula, amax === Infinity ? amax : roundedToBits(amax, bits));
  const code = steps.add("code", "127, since r is 2^128 or more", 127);
  return { scale: 1, code, multiplier: steps.add("m", "0, since r is 2^128 or more", 0) };
};

/** S_enc, the factor of a tensor whose amax is g; `full` is 6 times the largest block scale. */
export function encodeScale(steps: Steps, g: number, full: number): number {
  const quotient = div(full, g);
  if (g === 0 || quotient === 0) return steps.add("S", "1, since G is 0 or infinite", 1);
  const formula = quotient > FLT_MAX ? `${full} ⊘ G, at most FLT_MAX` : `${full} ⊘ G`;
  return steps.add("S", formula, Math.min(quotient, FLT_MAX));
}

/** Rounds `raw` to an e4m3 block scale and computes its multiplier. */
export function blockScale(steps: Steps, raw: number, s: number): RuleResult {
  const rounding = roundTo(raw, { format: "e4m3", rounding: "tiesToEven", overflow: "saturate" });
  const scale = steps.add("SF", "e4m3(raw), to nearest even, saturating", rounding.result);
  const product = steps.add("d", "SF ⊗ (1 ⊘ S)", mul(scale, div(1, s)));
  const multiplier = steps.add("m", "1 ⊘ d, at most FLT_MAX", Math.min(div(1, product), FLT_MAX));
  return { scale, code: rounding.code, multiplier, rounding };
}

const SIXTH = Math.fround(1 / 6);

const twoLevel: Rule = ({ steps, amax, tensorAmax, format }) => {
  const s = encodeScale(steps, tensorAmax, factsOf(format).max * factsOf("e4m3").max);
  const raw = mul(amax, mul(s, SIXTH));
  const formula = `amax ⊗ (S ⊗ fl(1/6))${raw > FLT_MAX ? ", at most FLT_MAX" : ""}`;
  return blockScale(steps, steps.add("raw", formula, Math.min(raw, FLT_MAX)), s);
};

const E4M3 = factsOf("e4m3");

/** Rounds `raw` to an e4m3 block scale that is used with the tensor scale t. */
function scaleUnder({ steps }: RuleInput, raw: number, least: number): RuleRounding {
  const formula = `raw, from ${least} to ${E4M3.max}`;
  const bounded = raw >= least && raw <= E4M3.max ? raw : Math.min(Math.max(raw, least), E4M3.max);
  if (!Object.is(bounded, raw)) steps.add("raw", formula, bounded);
  const rounding = roundTo(bounded, { format: "e4m3", rounding: "tiesToEven", overflow: "saturate" });
  return {
    scale: steps.add("SF", "e4m3(raw), to nearest even", rounding.result),
    code: rounding.code,
    rounding,
  };
}

type RuleRounding = Required<Pick<RuleResult, "scale" | "code" | "rounding">>;

/** Elements are multiplied by (1 / t) / SF. */
function multipliedUnder({ steps, tensorScale }: RuleInput, rounded: RuleRounding): RuleResult {
  const reciprocal = steps.add("r", "1 ⊘ t", div(1, tensorScale));
  return { ...rounded, multiplier: steps.add("m", "r ⊘ SF", div(reciprocal, rounded.scale)) };
}

/** Elements are divided by `divisor`, or multiplied by its reciprocal. */
function dividedUnder({ steps, divides }: RuleInput, rounded: RuleRounding, divisor: number): RuleResult {
  const multiplier = div(1, divisor);
  return {
    ...rounded,
    divisor: divisor,
    multiplier: divides ? multiplier : steps.add("m", "1 ⊘ d", multiplier),
  };
}

const LEAST_NORMAL = 2 ** -6;
const LEAST_SUBNORMAL = 2 ** -9;
const EIGHTH = { code: 0x20, scale: 0.125 } as const;

const twoLevelProduct: Rule = (input) => {
  const { steps, amax, tensorScale } = input;
  const quotient = div(amax, mul(6, tensorScale));
  let raw = steps.add("raw", "amax ⊘ (6 ⊗ t)", quotient);
  if (raw === 0) raw = steps.add("raw", "1, since raw is 0", 1);
  const rounded = scaleUnder(input, raw, LEAST_SUBNORMAL);
  return dividedUnder(input, rounded, steps.add("d", "SF ⊗ t", mul(rounded.scale, tensorScale)));
};

const twoLevelDivisor: Rule = (input) => {
  const { steps, amax, tensorScale, dtype } = input;
  const sixth = typedQuotient(input, steps.add("a", "amax ⊘ 6", div(amax, 6)), dtype);
  let rounded = scaleUnder(input, steps.add("raw", "t ⊗ a", mul(tensorScale, sixth)), 0);
  if (rounded.code === 0) {
    steps.add("SF", "0.125, since SF is 0", EIGHTH.scale);
    rounded = { ...rounded, ...EIGHTH };
  }
  return dividedUnder(input, rounded, steps.add("d", "SF ⊘ t", div(rounded.scale, tensorScale)));
};

const ue5m3Quotient: Rule = (input) => {
  const { steps, amax, dtype, divides } = input;
  const raw = typedQuotient(input, steps.add("a", "amax ⊘ 6", div(amax, 6)), dtype);
  const rounding = roundTo(raw, { format: "ue5m3", rounding: "tiesToEven", overflow: "saturate" });
  const scale = steps.add("SF", "ue5m3(a), to nearest even, saturating", rounding.result);
  const divisor = scale === 0 ? steps.add("d", "2^-23, since SF is 0", 2 ** -23) : scale;
  const multiplier = div(1, divisor);
  return {
    scale,
    code: rounding.code,
    rounding,
    divisor,
    multiplier: divides ? multiplier : steps.add("m", `1 ⊘ ${scale === 0 ? "d" : "SF"}`, multiplier),
  };
};

const e4m3HalfUp: Rule = ({ steps, amax, divides }) => {
  const raw = steps.add("raw", "amax ⊘ 6, up to 448", Math.min(div(amax, 6), E4M3.max));
  let code: number;
  if (raw < LEAST_NORMAL) {
    const units = steps.add("n", "(raw ⊗ 512) ⊕ 0.5", add(mul(raw, 512), 0.5));
    code = steps.add("code", "floor(n), up to 7", Math.min(Math.floor(units), 7));
  } else {
    const { code: nearest } = roundTo(raw, { format: "e4m3", rounding: "tiesToAway", overflow: "saturate" });
    code = steps.add("code", "e4m3(raw), half up; 126 from 120 on", nearest >= 0x78 ? 0x7e : nearest);
  }
  const scale = steps.add("SF", "the e4m3 value of the code", valueOfCode("e4m3", code));
  if (code > 0) {
    const multiplier = div(1, scale);
    return {
      scale,
      code,
      divisor: scale,
      multiplier: divides ? multiplier : steps.add("m", "1 ⊘ SF", multiplier),
    };
  }
  const divisor = divides ? steps.add("d", "infinity, since SF is 0", Number.POSITIVE_INFINITY) : scale;
  return { scale, code, divisor, multiplier: divides ? 0 : steps.add("m", "0, since SF is 0", 0) };
};

function typedQuotient({ steps }: RuleInput, a: number, dtype: WideDType): number {
  return dtype === "f32" ? a : steps.add("a", `a, rounded to ${dtype}`, roundedTo(a, dtype));
}

/** Rounds a quotient to the input's type; 0 becomes the epsilon of that type. */
function typedLeast(input: RuleInput, s: number): number {
  const rounded = typed(input, s);
  const { steps, dtype } = input;
  return rounded === 0 ? steps.add("s", `the epsilon of ${dtype}, since s is 0`, epsilonOf(dtype)) : rounded;
}

/** Half the distance from the smallest to the largest value. */
function halfRange(format: ScalarFormat): number {
  const { max, maxCode, minPositive } = factsOf(format);
  const least = lastCode(SCALAR_FORMATS[format], maxCode, true) * minPositive;
  return (max + least) / 2;
}

/** Every rule by its name. */
export const RULE_STEPS = {
  f32,
  f32Quotient: quotient((_, s) => s),
  f32QuotientTyped: quotient(typed),
  f32QuotientLeast: quotient(typedLeast),
  f32QuotientRange: quotient(typedLeast, "half of the range", halfRange),
  f32QuotientUp: quotient(powerUp),
  f32Reciprocal: (input) => {
    const { steps, dtype, format } = input;
    const a = amaxOrEpsilon(input, dtype);
    if (a === 0) {
      const m = steps.add("m", "1, since amax is 0", 1);
      return f32Scale(steps.add("s", "1 ⊘ m", 1), m);
    }
    const m = steps.add("m", "(1 ⊘ amax) ⊗ max", mul(div(1, a), factsOf(format).max));
    return f32Scale(steps.add("s", "1 ⊘ m", div(1, m)), m);
  },
  e8m0Up: ({ steps, amax, format }) => {
    const reciprocal = steps.add("c", "fl(1 / max)", div(1, factsOf(format).max));
    return upFrom(steps, steps.add("p", "amax ⊗ c", mul(amax, reciprocal)));
  },
  e8m0UpQuotient: ({ steps, amax, format }) =>
    upFrom(steps, steps.add("p", "amax ⊘ max", div(amax, factsOf(format).max))),
  e8m0UpLog2,
  e8m0UpLeast: ({ steps, amax, format }) => {
    const least = steps.add("a", "amax, at least fl(10^-4)", Math.max(amax, Math.fround(1e-4)));
    return upFrom(steps, steps.add("p", "a ⊘ max", div(least, factsOf(format).max)));
  },
  e8m0FloorLog2,
  e8m0UpNormal,
  e8m0Floor: byExponent(),
  e8m0Ceil: byExponent(({ amax }) => [
    "amax, rounded up to a power of two",
    2 ** floorLog2(amax) === amax ? amax : 2 ** (floorLog2(amax) + 1),
  ]),
  e8m0Even: even,
  e8m0EvenShort: evenShort,
  twoLevel,
  e4m3Quotient: (input) => {
    const { steps, amax } = input;
    return multipliedUnder(
      input,
      scaleUnder(input, steps.add("raw", "amax ⊘ 6", div(amax, 6)), LEAST_NORMAL),
    );
  },
  e4m3HalfUp,
  twoLevelQuotient: (input) => {
    const { steps, amax, tensorScale } = input;
    const raw = steps.add("raw", "(amax ⊘ 6) ⊘ t", div(div(amax, 6), tensorScale));
    return multipliedUnder(input, scaleUnder(input, raw, LEAST_NORMAL));
  },
  twoLevelProduct,
  twoLevelDivisor,
  ue5m3Quotient,
} as const satisfies Record<ScaleRuleName, Rule>;
