/** The scales of a matrix under each rule: the rules of the tables, and others that kernels in the field use. */
import { type BlockFormatName, blockFormat, isSquare, type Tile } from "../../formats/block.js";
import type { BlockScaleFormat } from "../../formats/datapath.js";
import { factsOf } from "../../formats/derive.js";
import type { ElementScalingName } from "../../formats/element-scalings.js";
import type { ScalarFormat } from "../../formats/scalar.js";
import { SCALE_RULES, type ScaleRuleName } from "../../formats/scale-rules.js";
import { quantizerNamed } from "../../quantizers/named.js";
import { scaleLines } from "../../tensor/geometry.js";
import type { FourOverSix, QuantizeSpec } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { FOUR_OVER_SIX } from "../../tensor/spec.js";
import type { Tensor } from "../../tensor/tensor.js";
import { type PlainQuantized, plainOf, scaleAt } from "../plain.js";
import { DIALECTS, type Dialect } from "../table.js";

/** A quantizer with its format and tile. */
export interface MatrixKind {
  readonly quantizer: BlockFormatName;
  readonly format: ScalarFormat;
  readonly tile: Tile;
}

/** The settings that decide scales. */
export interface ScaleSettings {
  readonly scaleRule: ScaleRuleName;
  readonly pow2Scales?: boolean;
  readonly amaxEpsilon?: number;
  readonly amaxLimit?: number;
  readonly fourOverSix?: FourOverSix;
  readonly e4m3Max?: QuantizeSpec["e4m3Max"];
  readonly rowScaled?: boolean;
}

/** Whether a spec has these settings. Its element scaling is not compared. */
export function areOf(settings: ScaleSettings, spec: QuantizeSpec): boolean {
  const { scaleRule, pow2Scales = false, amaxEpsilon = 0, amaxLimit = 0 } = settings;
  const { fourOverSix = "none", e4m3Max = 448, rowScaled = false } = settings;
  const specSettings = { scaleRule, pow2Scales, amaxEpsilon, amaxLimit, fourOverSix, e4m3Max, rowScaled };
  return Object.entries(specSettings).every(
    ([name, value]) => spec[name as keyof typeof specSettings] === value,
  );
}

/** The values that dialects use for an amax bound, and undefined. */
function boundsOf(bound: "amaxEpsilon" | "amaxLimit"): readonly number[] {
  const forms = Object.values(DIALECTS as Readonly<Record<string, Dialect>>).flatMap((row) => row.forms);
  return [...new Set([0, ...forms.map(({ fixed }) => fixed[bound] ?? 0)])].sort((a, b) => a - b);
}

const BOUNDS = { amaxEpsilon: boundsOf("amaxEpsilon"), amaxLimit: boundsOf("amaxLimit") };

/**
 * Settings that exist only for the first rule of a quantizer: 4over6 under each maximum of the block scales, and one amax for
 * each row.
 */
function settingsOfOwnRule({ quantizer, tile }: Pick<MatrixKind, "quantizer" | "tile">) {
  const { options } = blockFormat(quantizer);
  const choices: readonly Omit<ScaleSettings, "scaleRule">[] = options.includes("fourOverSix")
    ? FOUR_OVER_SIX.flatMap((fourOverSix) =>
        fourOverSix === "none" ? [{}] : ([256, 448] as const).map((e4m3Max) => ({ fourOverSix, e4m3Max })),
      )
    : [{}];
  if (!options.includes("rowScaled") || isSquare(tile)) return choices;
  return choices.flatMap((choice) => [choice, { ...choice, rowScaled: true }]);
}

/** All scale settings that a quantizer has with a tile. */
export function scaleSettings(shape: Pick<MatrixKind, "quantizer" | "tile">): readonly ScaleSettings[] {
  const { quantizer } = shape;
  const { rules, options } = blockFormat(quantizer);
  return rules.flatMap((scaleRule) => {
    const powers = options.includes("pow2Scales") && SCALE_RULES[scaleRule].powers === "asked";
    const within = (bound: keyof typeof BOUNDS): readonly (number | undefined)[] =>
      options.includes(bound) ? BOUNDS[bound] : [undefined];
    return within("amaxEpsilon").flatMap((amaxEpsilon) =>
      within("amaxLimit").flatMap((amaxLimit) =>
        (powers ? [true, false] : [undefined]).flatMap((pow2Scales) =>
          (scaleRule === rules[0] ? settingsOfOwnRule(shape) : [{}]).map((extra) => ({
            scaleRule,
            ...(pow2Scales === undefined ? {} : { pow2Scales }),
            ...(amaxEpsilon === undefined ? {} : { amaxEpsilon }),
            ...(amaxLimit === undefined ? {} : { amaxLimit }),
            ...extra,
          })),
        ),
      ),
    );
  });
}

/** Quantizes `x` with a quantizer of the library. Also returns the spec. */
export function quantizedBy(
  x: Tensor<WideDType>,
  { quantizer, format, tile }: MatrixKind,
  settings: ScaleSettings,
  elementScaling: ElementScalingName = SCALE_RULES[settings.scaleRule].scalings[0],
): { readonly plain: PlainQuantized; readonly spec: QuantizeSpec } {
  using _scope = new Scope();
  const quantized = quantizerNamed(quantizer, { format, tile, ...settings, elementScaling }).quantize(x);
  return { plain: plainOf(quantized), spec: quantized.spec };
}

/** The amaxes of the blocks of a matrix, in the order of its scales. */
export function amaxesOf(
  x: Float32Array,
  shape: Pick<MatrixKind, "quantizer" | "tile">,
  [rows, columns]: readonly [number, number],
): Float32Array {
  const [down, across] = scaleLines(shape, [rows, columns], "rowwise");
  const at = scaleAt(shape, columns);
  const amaxes = new Float32Array(down * across);
  for (let i = 0; i < x.length; i++) {
    const block = at(Math.floor(i / columns), i % columns);
    amaxes[block] = Math.max(amaxes[block] as number, Math.abs(x[i] as number));
  }
  return amaxes;
}

/** A scale rule that no table has. */
export interface OtherRule {
  readonly name: string;
  readonly formula: string;
  /** The scale code, or the f32 scale, of a block. */
  readonly of: (amax: number, format: ScalarFormat) => number;
}

const byExponent = (exponent: number): number => Math.min(Math.max(exponent, -127), 127) + 127;
/** The quotient of an amax and the largest value of a format, as kernels compute it in f32. */
const QUOTIENTS = [
  ["amax / max", (amax: number, max: number) => Math.fround(amax / max)],
  ["amax * fl(1 / max)", (amax: number, max: number) => Math.fround(amax * Math.fround(1 / max))],
] as const;

/** The floor of a quotient: for all quotients, or for normal ones only. */
const FLOORS: readonly OtherRule[] = QUOTIENTS.flatMap(([formula, quotient]) =>
  [false, true].map((isNormal) => ({
    name: "floor of the quotient",
    formula: `2^floor(log2(${formula})), so that the largest elements are clamped${isNormal ? "; subnormal quotients are rounded up" : ""}`,
    of: (amax: number, format: ScalarFormat) => {
      const q = quotient(amax, factsOf(format).max);
      if (q === 0) return 0;
      const exponent = Math.log2(q);
      return byExponent(isNormal && q < 2 ** -126 ? Math.ceil(exponent) : Math.floor(exponent));
    },
  })),
);

/** Rules that kernels in the field use, by the type of the scale. */
export const OTHER_RULES: Readonly<Record<BlockScaleFormat, readonly OtherRule[]>> = {
  e8m0: [
    ...FLOORS,
    {
      name: "nearest of the quotient",
      formula: "2^round(log2(amax / max))",
      of: (amax, format) =>
        amax === 0 ? 0 : byExponent(Math.round(Math.log2(Math.fround(amax / factsOf(format).max)))),
    },
    { name: "one", formula: "1 in every block", of: () => 127 },
  ],
  f32: [{ name: "one", formula: "1 in every block", of: () => 1 }],
  e4m3: [{ name: "one", formula: "1 in every block", of: () => 0x38 }],
  ue5m3: [{ name: "one", formula: "1 in every block", of: () => 0x78 }],
};
