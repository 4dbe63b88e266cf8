/** Laws of `encode` without a reference: they are stated over values, neighbours and midpoints. */
import * as fc from "fast-check";
import type { RoundingName } from "../../src/backends/ops.js";
import { derive } from "../../src/formats/derive.js";
import type { ScalarLayout } from "../../src/formats/scalar.js";
import { DETERMINISTIC, overflow, randomSource, rounding } from "../arbitraries/formats.js";
import { aimedPattern, patternFor } from "../arbitraries/patterns.js";
import { random16 } from "../oracle/core/philox.js";
import { bitsOf, fromBits, isInteger, valueOfCode } from "../values/values.js";
import { type Law, law } from "./law.js";
import { codesOf, layoutWith, neighbours, require, show } from "./scalar.js";

const aimed = layoutWith((layout) => fc.array(aimedPattern(layout), { minLength: 1, maxLength: 40 }));

function nearest(name: string, rule: RoundingName, only: "ties" | "all"): Law {
  return law({ name, operation: "encode" }, aimed, async (subject, { layout, drawn }) => {
    const codes = await codesOf(subject, layout, drawn, { rounding: rule, overflow: "saturate" });
    codes.forEach((code, i) => {
      const bits = drawn[i] as number;
      const near = neighbours(fromBits(bits), layout);
      if (!near || near.low === derive(layout).maxCode) return;
      const [down, up] = [Math.abs(fromBits(bits)) - near.below, near.above - Math.abs(fromBits(bits))];
      const tie = down === up;
      if (tie !== (only === "ties")) return;
      const evenUp = rule === "tiesToAway" || near.low % 2 === 1;
      const expected = (tie ? evenUp : up < down) ? near.above : near.below;
      const value = Math.abs(valueOfCode(code, layout));
      require(value === expected, () =>
        `${show(bits)} became ${value}; ${tie ? "the tie goes to" : "nearest is"} ${expected}`);
    });
  });
}

/** Whether `encode` can return a value: it is finite, and not the extra negative value that `symmetric` integers exclude. */
function isGiven(value: number, layout: ScalarLayout): boolean {
  return Number.isFinite(value) && !(layout.specials === "symmetric" && value < -derive(layout).max);
}

const roundTrip = law(
  { name: "what a code stands for encodes to that code", operation: "encode" },
  layoutWith((layout) =>
    fc.tuple(
      fc.array(fc.integer({ min: 0, max: 2 ** derive(layout).bits - 1 }), { minLength: 1 }),
      rounding(),
      overflow(),
      randomSource(),
    ),
  ),
  async (subject, { layout, drawn: [codes, mode, policy, random] }) => {
    const finite = codes.filter((code) => isGiven(valueOfCode(code, layout), layout));
    const patterns = finite.map((code) => bitsOf(valueOfCode(code, layout)));
    const back = await codesOf(subject, layout, patterns, { rounding: mode, overflow: policy, random });
    back.forEach((code, i) => {
      require(code === finite[i], () =>
        `0x${finite[i]?.toString(16)} is ${valueOfCode(finite[i] as number, layout)} and encodes to 0x${code.toString(16)}`);
    });
  },
);

/**
 * Patterns are compared in numerical order, -0 before +0. A layout that lacks zero encodes both zeros as its smallest value of
 * either sign.
 */
const monotone = law(
  { name: "encode is monotone", operation: "encode" },
  layoutWith((layout) =>
    fc.tuple(
      fc.array(aimedPattern(layout), { minLength: 2, maxLength: 40 }),
      rounding(DETERMINISTIC),
      overflow(),
    ),
  ),
  async (subject, { layout, drawn: [patterns, mode, policy] }) => {
    const rank = (bits: number): number =>
      bits < 2 ** 31 ? bits : layout.signed ? -1 - (bits - 2 ** 31) : bits - 2 ** 31;
    const sorted = patterns.toSorted((a, b) => rank(a) - rank(b));
    const values = (await codesOf(subject, layout, sorted, { rounding: mode, overflow: policy })).map(
      (code) => valueOfCode(code, layout),
    );
    const numbers = values
      .map((value, i) => ({ value, bits: sorted[i] as number }))
      .filter(({ value }) => !Number.isNaN(value));
    numbers.forEach(({ value, bits }, i) => {
      const before = numbers[i - 1];
      require(!before || before.value <= value, () =>
        `${show(before?.bits ?? 0)} became ${before?.value}, ${show(bits)} only ${value}`);
    });
  },
);

const bracket = law(
  {
    name: "encode goes no further than a neighbouring value, on the side the rounding says",
    operation: "encode",
  },
  layoutWith((layout) =>
    fc.tuple(fc.array(patternFor(layout), { minLength: 1 }), rounding(), randomSource()),
  ),
  async (subject, { layout, drawn: [patterns, mode, random] }) => {
    const codes = await codesOf(subject, layout, patterns, { rounding: mode, overflow: "saturate", random });
    codes.forEach((code, i) => {
      const bits = patterns[i] as number;
      const x = layout.signed ? fromBits(bits) : Math.abs(fromBits(bits));
      const near = neighbours(x, layout);
      if (!near || near.below === Math.abs(x)) return;
      const value = valueOfCode(code, layout);
      const [below, above] = x < 0 ? [-near.above, -near.below] : [near.below, near.above];
      const top = near.low === derive(layout).maxCode;
      const allowed = ALLOWED[mode]?.(below, above, near.low % 2 === 1 ? near.below : near.above) ?? [
        below,
        above,
      ];
      require(top || allowed.includes(value), () =>
        `${mode}: ${show(bits)} became ${value}, which is not ${allowed.join(" or ")}`);
    });
  },
);

/**
 * For each directed rounding, the results that a value between two neighbours may have; `odd` is the neighbour with the
 * odd code.
 */
const ALLOWED: Partial<Record<RoundingName, (below: number, above: number, odd: number) => number[]>> = {
  towardZero: (below, above) => [Math.abs(below) < Math.abs(above) ? below : above],
  towardPositive: (_, above) => [above],
  towardNegative: (below) => [below],
  toOdd: (below, above, odd) => [Math.abs(below) === odd ? below : above],
};

const zeroSign = law(
  { name: "a zero keeps its sign, and so does what underflows", operation: "encode" },
  layoutWith(() =>
    fc.tuple(
      fc.array(fc.constantFrom(0, 0x80000000, 1, 0x80000001), { minLength: 1 }),
      rounding(["tiesToEven", "tiesToAway", "towardZero"]),
    ),
  ).filter(
    ({ layout }) =>
      layout.signed &&
      layout.subnormals &&
      layout.specials !== "fnuz" &&
      !isInteger(layout) &&
      derive(layout).minPositive > 2 ** -140,
  ),
  async (subject, { layout, drawn: [patterns, mode] }) => {
    const codes = await codesOf(subject, layout, patterns, { rounding: mode, overflow: "saturate" });
    const minusZero = 2 ** (layout.exponentBits + layout.mantissaBits);
    codes.forEach((code, i) => {
      const expected = (patterns[i] as number) >= 0x80000000 ? minusZero : 0;
      require(code === expected, () =>
        `${show(patterns[i] as number)} became 0x${code.toString(16)}, not 0x${expected.toString(16)}`);
    });
  },
);

const words = law(
  {
    name: "stochastic rounding goes up exactly where its word is below the dropped fraction",
    operation: "encode",
  },
  layoutWith((layout) =>
    fc.tuple(fc.array(aimedPattern(layout), { minLength: 1, maxLength: 40 }), randomSource()),
  ),
  async (subject, { layout, drawn: [patterns, random] }) => {
    const codes = await codesOf(subject, layout, patterns, {
      rounding: "stochastic",
      overflow: "saturate",
      random,
    });
    codes.forEach((code, i) => {
      const magnitude = Math.abs(fromBits(patterns[i] as number));
      const near = neighbours(magnitude, layout);
      if (!near || near.low === derive(layout).maxCode) return;
      const fraction = Math.floor(((magnitude - near.below) / (near.above - near.below)) * 65536);
      const word = random16(random.seed, random.offset, 0, BigInt(i));
      const [value, expected] = [
        Math.abs(valueOfCode(code, layout)),
        word < fraction ? near.above : near.below,
      ];
      require(value === expected, () =>
        `${show(patterns[i] as number)} became ${value}; fraction ${fraction}, word ${word}`);
    });
  },
);

export const ENCODE_LAWS: readonly Law[] = [
  nearest("a tie goes to the even code", "tiesToEven", "ties"),
  nearest("a tie goes away from zero", "tiesToAway", "ties"),
  nearest("no value is nearer than the one encode gives", "tiesToEven", "all"),
  roundTrip,
  monotone,
  bracket,
  zeroSign,
  words,
];
