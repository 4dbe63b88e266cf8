/** Inputs at which the code of an element changes. */
import { factsOf } from "../../../src/formats/derive.js";
import { SCALAR_FORMATS, type ScalarFormat } from "../../../src/formats/scalar.js";
import { decode } from "../../oracle/core/scalar.js";

/** The values of the codes that are at least 0 and the midpoints between them, in ascending order. */
export function codeEdges(format: ScalarFormat): readonly number[] {
  const values = Array.from({ length: 2 ** factsOf(format).bits }, (_, code) =>
    decode(code, SCALAR_FORMATS[format]),
  ).filter((value) => value >= 0 && Number.isFinite(value));
  const codes = [...new Set(values)].toSorted((a, b) => a - b);
  return codes.flatMap((value, i) => (i === 0 ? [value] : [(value + (codes[i - 1] as number)) / 2, value]));
}
