/** Changes of tensors that suspects use, for inputs and for answers. */

import { roundTo } from "../../../src/explain/rounding.js";
import { isScalarFormat, valueOfCode } from "../../../src/formats/derive.js";
import { storageBits, type WideDType } from "../../../src/tensor/shape.js";
import type { Answer } from "../../operations/operation.js";
import { fromCodes, type PlainTensor, wideValues } from "../../values/plain.js";
import { bitsOf, fromBits } from "../../values/values.js";

/** The tensor with each value changed and rounded to its type. */
export function mapWide<D extends WideDType>(
  x: PlainTensor<D>,
  change: (value: number) => number,
): PlainTensor<D> {
  const codes = Array.from(wideValues(x), (value, i) => {
    const changed = change(value);
    return Object.is(changed, value) ? (x.codes[i] as number) : wideCode(x.dtype, changed);
  });
  return fromCodes(x.dtype, x.shape, codes);
}

/** The code of a value in a wide type, rounded to nearest even with overflow to infinity. */
export function wideCode(dtype: WideDType, value: number): number {
  if (dtype === "f32") return bitsOf(value);
  return roundTo(value, { format: dtype, rounding: "tiesToEven", overflow: "nonfinite" }).code;
}

/** The value of an element by its code. */
export function elementValue(dtype: PlainTensor["dtype"], code: number): number {
  if (dtype === "f32") return fromBits(code);
  return isScalarFormat(dtype) ? valueOfCode(dtype, code) : code;
}

/** The tensor with each code changed. */
export function mapCodes<D extends PlainTensor["dtype"]>(
  x: PlainTensor<D>,
  change: (code: number, index: number) => number,
): PlainTensor<D> {
  return fromCodes(x.dtype, x.shape, Array.from(x.codes, change));
}

/** The tensor with the two codes of each byte swapped. Undefined unless it has 4-bit codes. */
export function swapNibbles(x: PlainTensor): PlainTensor | undefined {
  if (storageBits(x.dtype) !== 4) return undefined;
  const { codes } = x;
  return mapCodes(x, (_, i) => codes[i ^ 1] as number);
}

/** The answer with one tensor replaced. */
export function withTensor(
  answer: Answer,
  name: string,
  tensor: PlainTensor | undefined,
): Answer | undefined {
  return tensor && answer[name] ? { ...answer, [name]: tensor } : undefined;
}

/** The transpose of the codes in the same shape. */
export function transposedCodes(x: PlainTensor): PlainTensor {
  const [rows, columns] = x.matrix;
  const { codes } = x;
  return mapCodes(x, (_, i) => codes[(i % rows) * columns + Math.floor(i / rows)] as number);
}
