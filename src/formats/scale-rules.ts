/**
 * The scale rules, one row each: how the amax of a block or of a tensor becomes the stored scale (numerics.md §2.3, §4.1, §5.1).
 * Which quantizer has which rules stands in its row of `BLOCK_FORMATS`. Their numbers in the backends are those of `ScaleRule`
 * in assembly/contract.ts, under the same names.
 */

/** One row of `SCALE_RULES`. */
export interface ScaleRule {
  /** The dtype of the stored scale. */
  readonly scale: "f32" | "e8m0" | "e4m3";
  /** The scale of a block with the given amax. `max` is the element format's largest value, `emax` its exponent. */
  readonly formula: string;
  /** Who defines it. */
  readonly source: string;
}

/** Every scale rule by its name. */
export const SCALE_RULES = {
  f32: {
    scale: "f32",
    formula: "1 / s, where s = max / amax multiplies the elements",
    source: "TransformerEngine",
  },
  e8m0Up: {
    scale: "e8m0",
    formula: "the least power of two from amax * fl(1 / max)",
    source: "TransformerEngine's MXFP8",
  },
  e8m0Floor: {
    scale: "e8m0",
    formula: "2^(floor(log2 amax) - emax)",
    source: "OCP MX 1.0 §6.3",
  },
  e8m0Ceil: {
    scale: "e8m0",
    formula: "2^(ceil(log2 amax) - emax)",
    source: "torchao's CEIL",
  },
  e8m0Even: {
    scale: "e8m0",
    formula: "2^(floor(log2 r) - emax), where r is amax rounded to the mantissa bits of the element",
    source: "torchao's EVEN; AMD Quark",
  },
  e8m0EvenShort: {
    scale: "e8m0",
    formula: "2^(floor(log2 r) - emax), where r is amax rounded to one mantissa bit",
    source: "compressed-tensors' MXFP8",
  },
  e8m0UpQuotient: {
    scale: "e8m0",
    formula: "the least power of two from amax / max",
    source: "DeepGEMM",
  },
  twoLevel: {
    scale: "e4m3",
    formula: "amax * (S_enc * fl(1 / 6)), under the tensor's factor S_enc",
    source: "TransformerEngine's NVFP4",
  },
} as const satisfies Record<string, ScaleRule>;

/** The name of a scale rule. */
export type ScaleRuleName = keyof typeof SCALE_RULES;

/** The names of the scale rules, in table order. */
export const SCALE_RULE_NAMES = Object.keys(SCALE_RULES) as readonly ScaleRuleName[];
