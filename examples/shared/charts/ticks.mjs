/** Powers in the labels of an axis, which have no markup. */

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** A power as a string, such as 2⁻⁴; 1 for exponent 0. */
export function powerText(base, exponent) {
  if (exponent === 0) return "1";
  return `${base}${Array.from(String(exponent), (digit) => RAISED[digit]).join("")}`;
}
