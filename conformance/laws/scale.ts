/** Laws of block scales without a reference: they are stated over codes and scales. */
import * as fc from "fast-check";
import { factsOf } from "../../src/formats/derive.js";
import { makeSpec } from "../../src/tensor/spec.js";
import { wideMatrix } from "../arbitraries/matrices.js";
import type { QuantizeCase } from "../operations/quantize/quantize.js";
import { MismatchError } from "../values/difference.js";
import { wideValues } from "../values/plain.js";
import { type Law, law } from "./law.js";

const NO_RANDOM = { seed: 0n, offset: 0n };
const BLOCK = 32;

function mxfp8Rowwise(): fc.Arbitrary<QuantizeCase> {
  const shape = fc.constantFrom(1, 2, 3).map((n) => [32, BLOCK * n]);
  return fc.tuple(fc.constantFrom("e4m3", "e5m2"), shape).chain(([format, sizes]) =>
    wideMatrix({ dtype: "f32", shape: sizes, block: BLOCK, max: factsOf(format).max }).map((x) => ({
      x,
      spec: makeSpec("mxfp8", { format, tile: "1x32" }),
      usage: { rowwise: true, columnwise: false },
      scaleLayout: "logical",
      random: NO_RANDOM,
      scale: 1,
    })),
  );
}

/**
 * The scale is the smallest power of two in 2^-127 to 2^127 that is at least amax / max. The quotient is an f32 (numerics.md
 * §4.1); the law also uses it where rounding dropped bits of a subnormal quotient.
 */
const leastPower = law(
  { name: "an mxfp8 scale is the least power of two under which the block fits", operation: "quantize" },
  mxfp8Rowwise(),
  async (subject, input) => {
    const answer = await subject.quantize?.(input);
    const scales = answer?.["rowwise.scaleInv"]?.codes;
    if (!scales) return;
    const values = wideValues(input.x);
    const { max } = factsOf(input.spec.format);
    scales.forEach((code, block) => {
      const elements = values.subarray(block * BLOCK, (block + 1) * BLOCK);
      const amax = elements.reduce((maximum, x) => Math.max(maximum, Number.isNaN(x) ? 0 : Math.abs(x)), 0);
      if (!Number.isFinite(amax)) return;
      const quotient = Math.fround(amax / max);
      const isLargeEnough = (exponent: number): boolean => quotient <= 2 ** exponent;
      if (isLargeEnough(code - 127) && (code === 0 || !isLargeEnough(code - 128))) return;
      throw new MismatchError(
        `block ${block} has amax ${amax} and scale 2^${code - 127}; the largest element is ${max}`,
      );
    });
  },
);

export const SCALE_LAWS: readonly Law[] = [leastPower];
