/** Formats numbers and decisions for the page. */
import { type ExplainedStep, factsOf, type RoundingExplanation, type ScalarFormat } from "lockstep";

/** A number with `digits` significant digits at most, and a typographic minus sign. */
export function show(x: number, digits = 6): string {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const sign = x < 0 || Object.is(x, -0) ? "−" : "";
  const magnitude = Math.abs(x);
  const text =
    magnitude !== 0 && (magnitude < 1e-4 || magnitude >= 1e7)
      ? magnitude
          .toExponential(digits - 1)
          .replace(/\.?0+e/, "e")
          .replace("e-", "e−")
          .replace("e+", "e")
      : `${+magnitude.toPrecision(digits)}`;
  return sign + text;
}

/** All digits of an f64, at most `most`. */
export function exactly(x: number, most = 48): string {
  if (!Number.isFinite(x) || x === 0) return show(x);
  const [sign, bits] = [x < 0 ? "−" : "", new DataView(new ArrayBuffer(8))];
  bits.setFloat64(0, Math.abs(x));
  const word = bits.getBigUint64(0);
  const field = Number(word >> 52n);
  let significand = (word & 0xfffffffffffffn) | (field > 0 ? 1n << 52n : 0n);
  let exponent = Math.max(field, 1) - 1075;
  while (significand % 2n === 0n) {
    significand /= 2n;
    exponent++;
  }
  if (exponent >= 0) return sign + cut((significand << BigInt(exponent)).toString(), most);
  const digits = (significand * 5n ** BigInt(-exponent)).toString().padStart(1 - exponent, "0");
  return sign + cut(`${digits.slice(0, exponent)}.${digits.slice(exponent)}`, most);
}

function cut(digits: string, most: number): string {
  return digits.length > most ? `${digits.slice(0, most)}…` : digits;
}

/** A code in hexadecimal, as wide as its format. */
export function hex(code: number, bits: number): string {
  return `0x${code
    .toString(16)
    .toUpperCase()
    .padStart(Math.ceil(bits / 4), "0")}`;
}

/** The code of a format in hexadecimal. */
export function codeText(code: number, format: string): string {
  return hex(code, format === "f32" ? 32 : factsOf(format as ScalarFormat).bits);
}

export function percent(share: number, digits = 3): string {
  return `${show(100 * share, digits)} %`;
}

/** Says in a sentence why a number became its code. */
export function decisionText({ decision, fraction, lower, upper }: RoundingExplanation): string {
  if (fraction === 0 || !lower || !upper) return `${decision.slice(0, 1).toUpperCase()}${decision.slice(1)}.`;
  return `${percent(fraction)} of the way from ${show(lower.value)} to ${show(upper.value)}: ${decision}.`;
}

/** A computation's step in one line: name, formula, value. */
export function stepText({ name, formula, value }: ExplainedStep): string {
  return `${name} = ${formula} = ${show(value, 9)}`;
}
