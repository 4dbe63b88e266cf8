/** Arbitraries of all options of the quantizers. */
import * as fc from "fast-check";
import { ArgumentError } from "../../src/errors.js";
import { BLOCK_FORMATS, type BlockFormat, type BlockFormatName } from "../../src/formats/block.js";
import { decidesTies, type ElementScalingName } from "../../src/formats/element-scalings.js";
import type { ScalarFormat } from "../../src/formats/scalar.js";
import {
  SCALE_RULES,
  type ScaleRule,
  type ScaleRuleName,
  scalingsOf,
  tensorScaleRole,
} from "../../src/formats/scale-rules.js";
import { RHT_SIGNS } from "../../src/ops/quantize/hadamard.js";
import { listOf, oneOf } from "../../src/options.js";
import type { QuantizeSpec, ScaleLayout, Usage } from "../../src/tensor/quantized.js";
import { WIDE_DTYPES, type WideDType } from "../../src/tensor/shape.js";
import { makeSpec, requireSpec } from "../../src/tensor/spec.js";
import { product } from "./covering.js";
import { allows, type Supported } from "./supported.js";

/** The names of all quantizers, the keys of `BLOCK_FORMATS`. */
export const QUANTIZERS = Object.keys(BLOCK_FORMATS) as readonly BlockFormatName[];

const quantizerName = oneOf(QUANTIZERS);
const quantizerNames = listOf(quantizerName);

/** The options of a spec by name: the values that a quantizer takes, the default first. */
export type SpecOptions = { readonly [K in keyof QuantizeSpec]?: readonly QuantizeSpec[K][] };

/** The options of the MX formats. */
const MX: SpecOptions = { stochastic: [false, true] };
const F32_SCALE = {
  pow2Scales: [false, true],
  amaxEpsilon: [0, 2 ** -10, 1e-12, 1],
} as const satisfies SpecOptions;

/** The options that only some quantizers take; formats, tiles and scale rules come from the rows of `BLOCK_FORMATS`. */
const OPTIONS: { readonly [K in BlockFormatName]?: SpecOptions } = {
  "fp8-current": F32_SCALE,
  "fp8-row": { ...F32_SCALE, amaxLimit: [0, 1200, 2 ** -126, 1 / 3] },
  "int8-row": { amaxEpsilon: F32_SCALE.amaxEpsilon, amaxLimit: [0, 1200] },
  "int4-group": { amaxEpsilon: F32_SCALE.amaxEpsilon },
  "fp8-block": { ...F32_SCALE, compact: [false, true] },
  mxfp8: MX,
  mxfp6: MX,
  mxfp4: MX,
  nvfp4: {
    rht: [false, true],
    rhtSigns: [0, RHT_SIGNS],
    stochastic: [false, true],
    fourOverSix: ["none", "mae", "mse"],
    e4m3Max: [448, 256],
    rowScaled: [false, true],
  },
};

/** All element scalings of these rules for these formats, the default first. */
function allScalings(
  rules: readonly ScaleRuleName[],
  formats: readonly ScalarFormat[],
): readonly ElementScalingName[] {
  return [...new Set(rules.flatMap((rule) => formats.flatMap((format) => scalingsOf(rule, format))))];
}

/** Every option of a quantizer with its values. Throws `ArgumentError` for an unknown name. */
export function optionsOf(name: BlockFormatName): SpecOptions {
  quantizerName("optionsOf", "name", name);
  const { elements, tiles, rules }: BlockFormat = BLOCK_FORMATS[name];
  return {
    format: elements,
    tile: tiles,
    scaleRule: rules,
    elementScaling: allScalings(rules, elements),
    ...OPTIONS[name],
  };
}

/**
 * Whether the options of a spec are compatible: 4over6 and row amaxes exclude the Hadamard transform and stochastic rounding,
 * which in turn excludes element scalings with a tie rule.
 */
function goTogether(spec: Partial<QuantizeSpec>): boolean {
  const { compact, tile, rht, rhtSigns = 0, stochastic, fourOverSix = "none", e4m3Max = 448 } = spec;
  const { format = "e4m3", scaleRule, elementScaling = "multiply", pow2Scales } = spec;
  if (scaleRule) {
    const scalings = scalingsOf(scaleRule, format);
    const { powers }: ScaleRule = SCALE_RULES[scaleRule];
    if (!scalings.includes(elementScaling) || (pow2Scales && powers !== "asked")) return false;
  }
  const role = scaleRule && tensorScaleRole(scaleRule);
  if (role !== undefined && role !== "amax" && (rht || stochastic || fourOverSix !== "none")) return false;
  if (spec.rowScaled && (role !== "amax" || tile !== "1x16" || rht || stochastic)) return false;
  if (spec.amaxLimit && spec.amaxLimit < (spec.amaxEpsilon ?? 0)) return false;
  if (stochastic && decidesTies(elementScaling)) return false;
  if (compact) return tile === "1x128";
  if (rhtSigns !== 0 && !rht) return false;
  if (rht && tile !== "1x16") return false;
  return fourOverSix === "none" ? e4m3Max === 448 : !rht && !stochastic;
}

/** Every valid spec of a quantizer. Throws `ArgumentError` for an unknown name. */
export function specsOf(name: BlockFormatName): readonly QuantizeSpec[] {
  const specs =
    specsCache.get(name) ??
    product(optionsOf(name))
      .filter(goTogether)
      .map((fields) => makeSpec(name, fields));
  specsCache.set(name, specs);
  return specs;
}

/**
 * The valid specs of a quantizer within supported values. All values that a subject lists for a field ("spec.amaxEpsilon") are
 * tried, even values that are not drawn for other subjects. Throws `ArgumentError` for an unknown name.
 */
export function specsWithin(name: BlockFormatName, supported: Supported): readonly QuantizeSpec[] {
  const listed = optionsOf(name);
  if (!allows(supported, { quantizer: name }, PREFIX, [`${PREFIX}quantizer`])) return [];
  const named = Object.entries(listed).map(
    ([option, values]) => [option, values, supported[PREFIX + option] ?? values] as const,
  );
  const isListed = named.every(([, values, supportedValues]) =>
    supportedValues.every((value) => (values as readonly unknown[]).includes(value)),
  );
  const specs = isListed
    ? specsOf(name)
    : product(
        Object.fromEntries(named.map(([option, , supportedValues]) => [option, supportedValues])),
      ).flatMap((fields) => validSpec(name, fields));
  return specs.filter((spec) => allows(supported, spec, PREFIX));
}

/** The prefix of spec fields in the input of an operation. */
const PREFIX = "spec.";

/** The spec with these fields, or an empty list if it is invalid. */
function validSpec(name: BlockFormatName, fields: object): readonly QuantizeSpec[] {
  try {
    return [makeSpec(name, fields)];
  } catch (error) {
    if (error instanceof ArgumentError) return [];
    throw error;
  }
}

/** A cache of the specs of each quantizer. */
const specsCache = new Map<BlockFormatName, readonly QuantizeSpec[]>();

/** The specs with the quantizer's default scale rule and scaling, which all backends have. */
function usualSpecs(name: BlockFormatName): readonly QuantizeSpec[] {
  const { scaleRule, elementScaling } = makeSpec(name, {});
  return specsOf(name).filter(
    (spec) => spec.scaleRule === scaleRule && spec.elementScaling === elementScaling,
  );
}

/**
 * Any valid spec of these quantizers. Every second one has the default scale rule and scaling. Throws `ArgumentError` for an
 * unknown name.
 */
export function quantizeSpec(names: readonly BlockFormatName[] = QUANTIZERS): fc.Arbitrary<QuantizeSpec> {
  const ownNames = quantizerNames("quantizeSpec", "names", names) as readonly BlockFormatName[];
  return specAmong(ownNames, () => true) as fc.Arbitrary<QuantizeSpec>;
}

/** As `quantizeSpec`, restricted to specs for which `isWanted` holds; undefined if there are none. */
export function specAmong(
  names: readonly BlockFormatName[],
  isWanted: (spec: QuantizeSpec) => boolean,
): fc.Arbitrary<QuantizeSpec> | undefined {
  return eitherOf(
    names.map((name) =>
      eitherOf(
        [usualSpecs(name), specsOf(name)].map((specs) => {
          const selected = specs.filter(isWanted);
          return selected.length > 0 ? fc.constantFrom(...selected) : undefined;
        }),
      ),
    ),
  );
}

/** Draws from the defined arbitraries; undefined if there are none. */
function eitherOf<T>(all: readonly (fc.Arbitrary<T> | undefined)[]): fc.Arbitrary<T> | undefined {
  const some = all.filter((each) => each !== undefined);
  return some.length > 0 ? fc.oneof(...some) : undefined;
}

/**
 * The input types of a quantizer: only bf16 with the Hadamard transform, else all wide types. Throws `ArgumentError` for an
 * invalid spec.
 */
export function sourceTypes(spec: QuantizeSpec): readonly WideDType[] {
  return requireSpec(spec).rht ? ["bf16"] : WIDE_DTYPES;
}

/**
 * One of `sourceTypes(spec)`.
 *
 * @throws `ArgumentError` for an invalid spec.
 */
export function sourceType(spec: QuantizeSpec): fc.Arbitrary<WideDType> {
  return fc.constantFrom(...sourceTypes(spec));
}

/** The sets of copies that a quantizer can create. */
export const USAGES: readonly Usage[] = [
  { rowwise: true, columnwise: false },
  { rowwise: false, columnwise: true },
  { rowwise: true, columnwise: true },
];

/** Rowwise, columnwise or both. */
export function usage(): fc.Arbitrary<Usage> {
  return fc.constantFrom(...USAGES);
}

/** The scale layouts that a spec supports. Throws `ArgumentError` for an invalid spec. */
export function layoutsOf(spec: QuantizeSpec): readonly ScaleLayout[] {
  const { quantizer } = requireSpec(spec);
  return BLOCK_FORMATS[quantizer].scale === "f32" ? ["logical", "padded"] : ["logical", "padded", "swizzled"];
}

/**
 * One of `layoutsOf(spec)`.
 *
 * @throws `ArgumentError` for an invalid spec.
 */
export function scaleLayout(spec: QuantizeSpec): fc.Arbitrary<ScaleLayout> {
  return fc.constantFrom(...layoutsOf(spec));
}
