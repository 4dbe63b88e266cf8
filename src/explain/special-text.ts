/** Explanations of the special-function unit as lines of text. */
import type { SpecialFunctionExplanation } from "./special-function.js";
import { codeText, numberText } from "./text.js";

/** Prints an explanation. Integers are decimal. */
export function specialFunctionText(explanation: SpecialFunctionExplanation): readonly string[] {
  const { function: name, x, fields, steps, result, bits } = explanation;
  const { s, E, f } = fields;
  return [
    `${name} of ${numberText(x)}`,
    `  s = ${s}, E = ${E}, f = ${f}`,
    ...steps.map((step) => `  ${step.name} = ${step.formula} = ${valueText(step.name, step.value)}`),
    `result ${numberText(result)}, bits ${codeText(bits, name.endsWith("f32") ? 32 : 16)}`,
  ];
}

/** Steps whose values are not integers of the datapath. */
const REAL = ["x", "p", "result"];

function valueText(name: string, value: number): string {
  return REAL.includes(name) ? numberText(value) : String(value);
}
