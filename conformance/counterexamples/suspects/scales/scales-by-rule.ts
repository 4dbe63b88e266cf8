/** Scales under other rules, options and formats than the spec's. */
import { DIALECTS, type Dialect } from "../../../../src/dialects/table.js";
import { blockFormat } from "../../../../src/formats/block.js";
import { factsOf } from "../../../../src/formats/derive.js";
import type { ScalarFormat } from "../../../../src/formats/scalar.js";
import { SCALE_RULES, type ScaleRule, type ScaleRuleName } from "../../../../src/formats/scale-rules.js";
import type { QuantizeSpec } from "../../../../src/tensor/quantized.js";
import type { ScaleSuspect } from "./scale-suspect.js";

/** The dialects whose quantizer has this scale rule. */
function dialectsWith(quantizer: QuantizeSpec["quantizer"], rule: ScaleRuleName): string {
  const names = Object.entries<Dialect>(DIALECTS)
    .filter(([, { forms }]) =>
      forms.some((form) => form.quantizer === quantizer && form.fixed.scaleRule === rule),
    )
    .map(([name]) => name);
  return names.length === 0 ? "" : `, as in ${names.slice(0, 3).join(", ")}`;
}

/** The spec with another rule, and with the settings that this rule determines. */
function withRule(spec: QuantizeSpec, scaleRule: ScaleRuleName): QuantizeSpec {
  const { powers, scalings }: ScaleRule = SCALE_RULES[scaleRule];
  const elementScaling = scalings.includes(spec.elementScaling) ? spec.elementScaling : scalings[0];
  return {
    ...spec,
    scaleRule,
    pow2Scales: powers === "asked" && spec.pow2Scales,
    elementScaling: elementScaling ?? spec.elementScaling,
  };
}

/** Scales under the quantizer's other rules and options. */
export function ofSpecs(spec: QuantizeSpec): ScaleSuspect[] {
  const { quantizer, scaleRule } = spec;
  const { rules, options } = blockFormat(quantizer);
  const by = (words: string, other: QuantizeSpec): ScaleSuspect => ({
    words,
    of: (view, block) => view.scaleBy(block, { spec: other }),
  });
  const suspects: ScaleSuspect[] = [];
  if (spec.fourOverSix !== "none")
    suspects.push(
      by("4over6 is missing: every block maps its amax to 6", { ...spec, fourOverSix: "none" }),
      ...(["mae", "mse"] as const)
        .filter((metric) => metric !== spec.fourOverSix)
        .map((fourOverSix) =>
          by(`4over6 chooses by the error ${fourOverSix}, not ${spec.fourOverSix}`, { ...spec, fourOverSix }),
        ),
    );
  if (options.includes("e4m3Max"))
    for (const e4m3Max of [448, 256] as const)
      if (e4m3Max !== spec.e4m3Max && spec.fourOverSix !== "none")
        suspects.push(by(`the largest block scale is ${e4m3Max}, not ${spec.e4m3Max}`, { ...spec, e4m3Max }));
  if (spec.rowScaled)
    suspects.push(by("the amax is that of the tensor, not of the row", { ...spec, rowScaled: false }));
  for (const rule of rules)
    if (rule !== scaleRule)
      suspects.push(
        by(
          `the scale rule is ${rule} (${SCALE_RULES[rule].formula}), not ${scaleRule}${dialectsWith(quantizer, rule)}`,
          withRule({ ...spec, fourOverSix: "none", rowScaled: false }, rule),
        ),
      );
  if (options.includes("pow2Scales") && (SCALE_RULES[scaleRule] as ScaleRule).powers === "asked")
    suspects.push(
      by(
        spec.pow2Scales ? "scales are not rounded to powers of two" : "scales are rounded to powers of two",
        { ...spec, pow2Scales: !spec.pow2Scales },
      ),
    );
  if (options.includes("amaxEpsilon"))
    for (const amaxEpsilon of [0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 2 ** -10])
      if (amaxEpsilon !== spec.amaxEpsilon)
        suspects.push(
          by(
            amaxEpsilon === 0
              ? "amaxEpsilon is ignored"
              : `the amax is at least ${amaxEpsilon}, not ${spec.amaxEpsilon}`,
            { ...spec, amaxEpsilon },
          ),
        );
  return suspects;
}

const FORMATS: readonly ScalarFormat[] = [
  "e4m3",
  "e5m2",
  "e4m3fnuz",
  "e5m2fnuz",
  "e2m3",
  "e3m2",
  "e2m1",
  "e3m4",
  "e4m3ieee",
];

/** Scales for another format's largest value. */
export function ofFormats(spec: QuantizeSpec): ScaleSuspect[] {
  return FORMATS.filter((format) => factsOf(format).max !== factsOf(spec.format).max).map((format) => ({
    words: `scales are those of ${format}, whose largest value is ${factsOf(format).max} (exponent ${factsOf(format).maxExponent}), not those of ${spec.format}`,
    of: (view, block) => view.scaleBy(block, { spec: { ...spec, format, fourOverSix: "none" } }),
  }));
}
