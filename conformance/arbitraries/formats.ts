/** Arbitraries of scalar formats, named ones and any layout, and of the options of a conversion. */
import * as fc from "fast-check";
import type { OverflowName, RoundingName } from "../../src/backends/ops.js";
import { LockstepError } from "../../src/errors.js";
import { OVERFLOW, ROUNDING } from "../../src/formats/contract.gen.js";
import { formatWord, SCALAR_FORMAT_NAMES } from "../../src/formats/derive.js";
import type { ScalarFormat, ScalarLayout } from "../../src/formats/scalar.js";
import { listOf, oneOf } from "../../src/options.js";

/** Every rounding mode. */
export const ROUNDINGS = Object.keys(ROUNDING) as readonly RoundingName[];
/** The rounding modes that use no random bits. */
export const DETERMINISTIC = ROUNDINGS.filter((rounding) => rounding !== "stochastic");
/** Every overflow mode. */
export const OVERFLOWS = Object.keys(OVERFLOW) as readonly OverflowName[];

const roundings = listOf(oneOf(ROUNDINGS));

/** One of these rounding modes. Throws `ArgumentError` for an unknown mode. */
export function rounding(among: readonly RoundingName[] = ROUNDINGS): fc.Arbitrary<RoundingName> {
  const modes = roundings("rounding", "among", among) as readonly RoundingName[];
  return fc.constantFrom(...modes);
}

/** Any overflow mode. */
export function overflow(): fc.Arbitrary<OverflowName> {
  return fc.constantFrom(...OVERFLOWS);
}

/** The seed and offset of a random stream. */
export function randomSource() {
  const u64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
  return fc.record({ seed: u64, offset: u64 });
}

/** Every layout that `formatWord` accepts. Shrinks to few bits and the IEEE bias. */
export function scalarLayout(): fc.Arbitrary<ScalarLayout> {
  const drawn = fc.record({
    exponentBits: fc.integer({ min: 1, max: 8 }),
    mantissaBits: fc.integer({ min: 0, max: 15 }),
    shift: fc.oneof(
      { weight: 2, arbitrary: fc.integer({ min: -2, max: 2 }) },
      fc.integer({ min: -300, max: 300 }),
    ),
    signed: fc.boolean().map((unsigned) => !unsigned),
    subnormals: fc.boolean().map((without) => !without),
    specials: fc.constantFrom("finite", "nanOnly", "ieee", "fnuz"),
  } as const);
  const floating = drawn.map(({ shift, ...fields }) => withBias(fields, shift)).filter(isLayout);
  return fc.oneof({ weight: 7, arbitrary: floating }, integerLayout());
}

/** Any integer layout of 2 to 16 bits. Shrinks to two bits and steps of 1. */
function integerLayout(): fc.Arbitrary<ScalarLayout> {
  return fc
    .tuple(fc.nat(14), fc.integer({ min: -100, max: 100 }), fc.constantFrom("integer", "symmetric"))
    .map(([mantissaBits, fraction, specials]) => ({
      exponentBits: 1,
      mantissaBits,
      bias: 1 - mantissaBits + fraction,
      signed: true,
      subnormals: true,
      specials,
    }));
}

/** A named format or any layout. */
export function format(): fc.Arbitrary<ScalarFormat | ScalarLayout> {
  return fc.oneof(fc.constantFrom(...SCALAR_FORMAT_NAMES), scalarLayout());
}

/** The layout with the IEEE bias plus `shift`, clamped so that f32 holds every value. */
function withBias(fields: Omit<ScalarLayout, "bias">, shift: number): ScalarLayout {
  const { exponentBits, mantissaBits, subnormals, specials } = fields;
  const usual = 2 ** (exponentBits - 1) - 1;
  const reservesTop = specials === "ieee" || (specials === "nanOnly" && mantissaBits === 0);
  const lowest = 2 ** exponentBits - (reservesTop ? 2 : 1) - 127;
  const highest = (subnormals ? 1 : 0) - mantissaBits + 149;
  return { ...fields, bias: Math.min(Math.max(usual + shift, lowest), highest) };
}

function isLayout(layout: ScalarLayout): boolean {
  try {
    formatWord(layout);
    return true;
  } catch (error) {
    if (error instanceof LockstepError) return false;
    throw error;
  }
}
