/** Why one element of a quantized matrix became the code that it became, as plain data. */
import {
  type Backend,
  ELEMENT_SCALINGS,
  type ElementScaling,
  factsOf,
  SCALE_RULES,
  type ScaleRule,
} from "lockstep";
import { type Quantization, scaleIndex } from "./quantization.js";
import { type Coded, type Rounded, roundAll } from "./rounding.js";

/** One element, from its input to its value. */
export interface ElementAnswer {
  readonly row: number;
  readonly column: number;
  readonly input: number;
  /** The block that shares its scale: first row and column, and the first beyond. */
  readonly block: { readonly rows: readonly [number, number]; readonly columns: readonly [number, number] };
  /** The largest magnitude in the block, and where it first stands. */
  readonly amax: number;
  readonly amaxAt: readonly [row: number, column: number];
  readonly rule: ScaleRule;
  readonly scale: Coded & { readonly format: string };
  readonly scaling: ElementScaling;
  /** Input over scale, rounded to the element format; undefined if that is not finite. */
  readonly rounded: Rounded | undefined;
  /** The element's code and its value without the scale. */
  readonly element: Coded;
  /** Whether the quantizer's code is the one that is nearest to input over scale. */
  readonly asNearest: boolean;
  readonly saturated: boolean;
  /** The value of the element: code times scale. */
  readonly value: number;
}

const NEAREST = { rounding: "tiesToEven", overflow: "saturate" } as const;

/** Explains the element at (row, column). */
export function explainElement(
  backend: Backend,
  quantization: Quantization,
  row: number,
  column: number,
): ElementAnswer {
  const { spec, columns, scales, inputs, codes, elements, values } = quantization;
  const at = row * columns + column;
  const index = scaleIndex(quantization, row, column);
  const scale = scales.values[index] as number;
  const input = inputs[at] as number;
  const ratio = input / scale;
  const [rounded] = Number.isFinite(ratio) ? roundAll(backend, [ratio], spec.format, NEAREST) : [];
  const element = { code: codes[at] as number, value: elements[at] as number };
  const block = blockAround(quantization, row, column);
  return {
    row,
    column,
    input,
    block,
    ...largestIn(quantization, block),
    rule: SCALE_RULES[spec.scaleRule],
    scale: { format: scales.format, code: scales.codes[index] as number, value: scale },
    scaling: ELEMENT_SCALINGS[spec.elementScaling],
    rounded,
    element,
    asNearest: rounded?.result.code === element.code,
    saturated: isSaturated(quantization, at, ratio),
    value: values[at] as number,
  };
}

/** Whether an element has the largest code although its value is beyond it. */
export function isSaturated({ spec, elements }: Quantization, at: number, ratio: number): boolean {
  const { max } = factsOf(spec.format);
  return Math.abs(elements[at] as number) === max && Math.abs(ratio) > max;
}

function blockAround(
  { rows, columns, block, scales }: Quantization,
  row: number,
  column: number,
): ElementAnswer["block"] {
  const range = (at: number, size: number, end: number) => {
    const first = Math.floor(at / size) * size;
    return [first, Math.min(first + size, end)] as const;
  };
  return {
    rows: range(row, Math.max(block.rows, scales.lineRows), rows),
    columns: range(column, block.columns, columns),
  };
}

function largestIn(
  { inputs, columns }: Quantization,
  block: ElementAnswer["block"],
): Pick<ElementAnswer, "amax" | "amaxAt"> {
  let amax = 0;
  let amaxAt: readonly [number, number] = [block.rows[0], block.columns[0]];
  for (let row = block.rows[0]; row < block.rows[1]; row++)
    for (let column = block.columns[0]; column < block.columns[1]; column++) {
      const magnitude = Math.abs(inputs[row * columns + column] as number);
      if (magnitude > amax) [amax, amaxAt] = [magnitude, [row, column]];
    }
  return { amax, amaxAt };
}
