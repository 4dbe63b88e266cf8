/** The stages of a quantizer in which faults are planted: inputs, scales, codes, and the stored amax. */
import { roundedElement, scaledElement } from "../../../../src/explain/element.js";
import type { RuleResult } from "../../../../src/explain/scale-rules.js";
import { blockFormat } from "../../../../src/formats/block.js";
import { FLT_MAX, factsOf } from "../../../../src/formats/derive.js";
import { DIRECTIONS, type QuantizeSpec } from "../../../../src/tensor/quantized.js";
import { wideCode } from "../../../counterexamples/suspects/inputs.js";
import { View } from "../../../counterexamples/suspects/view.js";
import type { Answer } from "../../../operations/operation.js";
import type { QuantizeCase } from "../../../operations/quantize/quantize.js";
import { fromCodes, type PlainTensor, wideValues } from "../../../values/plain.js";

/** The reference's answer to a case. */
export type Reference = (input: QuantizeCase) => Answer | Promise<Answer>;

/** A fault of a kernel, planted in the reference. */
export interface Fault {
  readonly name: string;
  /** Matches one of the named mistakes. Absent for a fault that has no name, for which no cause may be stated. */
  readonly causePattern?: RegExp;
  /** The specs in which it can be planted. Default: all. */
  readonly isFor?: (spec: QuantizeSpec) => boolean;
  readonly answer: (input: QuantizeCase, reference: Reference) => Answer | Promise<Answer>;
}

type Rest = Pick<Fault, "causePattern" | "isFor">;

/** The element that a fault in codes changes. */
export interface Element {
  readonly x: number;
  readonly isNegative: boolean;
  /** The scaled value. */
  readonly y: number;
  readonly row: number;
  readonly column: number;
  readonly spec: QuantizeSpec;
  readonly signBit: number;
  readonly block: RuleResult;
}

/** A hash of two numbers that depends on all their bits. */
export function scramble(a: number, b: number): number {
  let x = Math.imul(a ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(b + 0x165667b1, 0xc2b2ae35);
  x = Math.imul(x ^ (x >>> 15), 0x2c1b3c6d);
  return (x ^ (x >>> 13)) >>> 0;
}

/** A fault that changes each input first. */
export function inInput(
  name: string,
  alter: (x: number, largest: number) => number,
  options: Rest = {},
): Fault {
  return {
    name,
    ...options,
    answer: (input, reference) => {
      const { dtype, shape } = input.x;
      const values = wideValues(input.x);
      const largest = dtype === "f32" ? FLT_MAX : factsOf(dtype).max;
      const codes = Array.from(input.x.codes, (code, i) => {
        const alteredValue = alter(values[i] as number, largest);
        return Object.is(alteredValue, values[i]) ? code : wideCode(dtype, alteredValue);
      });
      return reference({ ...input, x: fromCodes(dtype, shape, codes) });
    },
  };
}

/** A fault that changes each correct code. */
export function inCodes(
  name: string,
  alter: (code: number, element: Element) => number,
  options: Rest = {},
): Fault {
  return {
    name,
    ...options,
    async answer(input, reference) {
      const answer = await reference(input);
      return copiesOf(input, answer, (view, data) => {
        const codes = Array.from(data.codes);
        forElements(view, view.expected, (index, element) => {
          codes[index] = alter(codes[index] as number, element);
        });
        return { data: fromCodes(data.dtype, data.shape, codes) };
      });
    },
  };
}

/** A fault that changes each correct scale code. `recodes`: elements are scaled by the changed scale. */
export function inScales(
  name: string,
  alter: (code: number, view: View, block: number) => number,
  options: Rest & { readonly recodes?: boolean } = {},
): Fault {
  return {
    name,
    ...options,
    async answer(input, reference) {
      const answer = await reference(input);
      return copiesOf(input, answer, (view, data, scaleInv) => {
        const scales = Array.from(scaleInv.codes, (code, block) => alter(code, view, block));
        const storedScales = { scaleInv: fromCodes(scaleInv.dtype, scaleInv.shape, scales) };
        if (!options.recodes) return storedScales;
        const codes = Array.from(data.codes);
        const alteredCodes = scales.map((code, block) =>
          code === view.expected[block]?.code
            ? (view.expected[block] as RuleResult)
            : view.resultOf(code, block),
        );
        forElements(view, alteredCodes, (index, { y, spec }) => {
          codes[index] = roundedElement(y, spec).code;
        });
        return { ...storedScales, data: fromCodes(data.dtype, data.shape, codes) };
      });
    },
  };
}

/** A fault in the stored amax or tensor scale. */
export function inAmax(
  name: string,
  alter: (amax: number, input: QuantizeCase) => number,
  options: Rest = {},
): Fault {
  return {
    isFor: (spec) => blockFormat(spec.quantizer).tensorAmax || spec.quantizer === "fp8-delayed",
    name,
    ...options,
    async answer(input, reference) {
      const answer = await reference(input);
      const amaxes = Object.entries(answer).filter(([key]) => /(^|\.)amax$/.test(key));
      const alteredAmaxes = amaxes.map(([key, tensor]) => {
        const amaxValues = new Float32Array(Uint32Array.from(tensor.codes).buffer);
        const bits = new Uint32Array(amaxValues.map((amax) => alter(amax, input)).buffer);
        return [key, fromCodes("f32", tensor.shape, bits)] as const;
      });
      return { ...answer, ...Object.fromEntries(alteredAmaxes) };
    },
  };
}

/** The answer with tensors of each copy replaced. */
function copiesOf(
  input: QuantizeCase,
  answer: Answer,
  alter: (view: View, data: PlainTensor, scaleInv: PlainTensor) => Readonly<Record<string, PlainTensor>>,
): Answer {
  const alteredAnswer = { ...answer };
  for (const direction of DIRECTIONS) {
    const [data, scaleInv] = [answer[`${direction}.data`], answer[`${direction}.scaleInv`]];
    if (!data || !scaleInv) continue;
    for (const [part, tensor] of Object.entries(alter(new View(input, direction), data, scaleInv)))
      alteredAnswer[`${direction}.${part}`] = tensor;
  }
  return alteredAnswer;
}

function forElements(
  view: View,
  scales: readonly RuleResult[],
  visit: (index: number, element: Element) => void,
): void {
  const { spec, source, values } = view;
  const signBit = 2 ** (factsOf(spec.format).bits - 1);
  for (const [i, { x, isNegative }] of view.elements.entries()) {
    const block = scales[view.scaleOf[i] as number] as RuleResult;
    const { value: y } = scaledElement(x, block, spec.elementScaling, values.dtype);
    const [row, column] = [Math.floor(i / source.columns), i % source.columns];
    visit(view.codeOf[i] as number, { x, isNegative, y, row, column, spec, signBit, block });
  }
}
