/** Changes of operands that suspects of products use. */
import { factsOf, isScalarFormat } from "../../../src/formats/derive.js";
import type { OperandCase } from "../../operations/gemm/operand.js";
import { bitsOf, fromBits } from "../../values/values.js";
import { elementValue, mapCodes, swapNibbles } from "./inputs.js";

/** Sets the codes from some index along K to zero. */
export function withoutTail(operand: OperandCase, kept: (depth: number) => number): OperandCase | undefined {
  const [, depth] = operand.codes.matrix;
  const from = kept(depth);
  return { ...operand, codes: mapCodes(operand.codes, (code, i) => (i % depth < from ? code : 0)) };
}

/** Changes the scales of an operand by position: line i and block j. */
export function withScales(
  operand: OperandCase,
  place: (i: number, j: number, down: number, across: number) => readonly [number, number],
): OperandCase | undefined {
  const { scales } = operand;
  if (!scales || scales.shape.length < 2) return operand;
  const [down, across] = scales.matrix;
  const { codes } = scales;
  const moved = mapCodes(scales, (_, at) => {
    const [i, j] = place(Math.floor(at / across), at % across, down, across);
    return codes[i * across + j] as number;
  });
  return { ...operand, scales: moved };
}

export function withOnes(operand: OperandCase): OperandCase {
  const { scales } = operand;
  if (!scales) return operand;
  const one = { f32: 0x3f800000, e8m0: 127, e4m3: 0x38 }[scales.dtype as "f32"];
  return one === undefined ? operand : { ...operand, scales: mapCodes(scales, () => one) };
}

export function transposedScales(operand: OperandCase): OperandCase | undefined {
  return withScales(operand, (i, j, down, across) => {
    const at = i * across + j;
    return [at % down, Math.floor(at / down)];
  });
}

export function swapped(operand: OperandCase): OperandCase | undefined {
  const codes = swapNibbles(operand.codes);
  return codes && { ...operand, codes };
}

export function reciprocals(operand: OperandCase): OperandCase | undefined {
  const { scales } = operand;
  if (!scales || (scales.dtype !== "f32" && scales.dtype !== "e8m0")) return undefined;
  return {
    ...operand,
    scales: mapCodes(scales, (code) =>
      scales.dtype === "f32" ? bitsOf(1 / fromBits(code)) : Math.max(0, 254 - code),
    ),
  };
}

export function withoutAmax(operand: OperandCase): OperandCase | undefined {
  const { amax } = operand;
  return amax && { ...operand, amax: mapCodes(amax, () => bitsOf(2688)) };
}

export function flushed(operand: OperandCase): OperandCase | undefined {
  const { codes } = operand;
  const { dtype } = codes;
  if (!isScalarFormat(dtype)) return undefined;
  const { minNormal, bits } = factsOf(dtype);
  return {
    ...operand,
    codes: mapCodes(codes, (code) =>
      Math.abs(elementValue(dtype, code)) < minNormal ? code & (2 ** (bits - 1)) : code,
    ),
  };
}
