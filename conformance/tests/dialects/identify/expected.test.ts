/** Scales of rules by exponent are the codes that comparisons with powers of two give, for amaxes of all magnitudes. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { OTHER_RULES } from "../../../../src/dialects/identify/expected.js";
import { factsOf } from "../../../../src/formats/derive.js";
import { draws } from "../../harness/draws.js";

const { fround } = Math;
/** The powers of two of the e8m0 codes. */
const POWERS = Float64Array.from({ length: 255 }, (_, code) => 2 ** (code - 127));

/** The largest code whose power is at most a quotient; 0 if all are larger. */
const floorOf = (q: number): number =>
  Math.max(
    0,
    POWERS.findLastIndex((power) => power <= q),
  );
const ceilOf = (q: number): number => POWERS.findIndex((power) => power >= q);

/** The code of a quotient by the name and the formula of a rule. */
function expectedOf(name: string, formula: string, amax: number, max: number): number {
  if (name === "one") return 127;
  const q = formula.includes("fl(1 / max)") ? fround(amax * fround(1 / max)) : fround(amax / max);
  if (q === 0) return 0;
  if (name === "floor of the quotient")
    return formula.includes("subnormal") && q < 2 ** -126 ? ceilOf(q) : floorOf(q);
  // the nearest in the exponent: the bound between two powers is the root of their product
  return Math.max(0, 1 + POWERS.findLastIndex((power) => q >= power * Math.SQRT2));
}

const amaxes = fc.oneof(
  fc
    .tuple(
      fc.integer({ min: -149, max: 127 }),
      fc.constantFrom(1, 448, 6, 57344, 28, 1.5, 1 + 2 ** -23, 1 - 2 ** -24),
    )
    .map(([exponent, factor]) => fround(factor * 2 ** exponent))
    .filter(Number.isFinite),
  fc.float({ min: 0, noDefaultInfinity: true, noNaN: true }),
);

it.each(OTHER_RULES.e8m0)("$name: $formula", ({ name, formula, of }) => {
  fc.assert(
    fc.property(amaxes, fc.constantFrom("e4m3", "e5m2", "e2m1", "e2m3", "e3m2"), (amax, format) => {
      expect(of(amax, format)).toBe(expectedOf(name, formula, amax, factsOf(format).max));
    }),
    {
      numRuns: draws(3000, 300),
      examples: [
        [2 ** -125, "e4m3"],
        [2 ** -149, "e2m1"],
        [fround(3.4e38), "e2m1"],
      ],
    },
  );
});
