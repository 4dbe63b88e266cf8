/** The bits of a code, coloured by field. */
import { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "lockstep";

/** The widths of sign, exponent and fraction. */
type Fields = readonly [sign: number, exponent: number, fraction: number];

const F32: Fields = [1, 8, 23];
const NAMES = ["sign", "exponent", "fraction"] as const;

function fieldsOf(format: ScalarFormat | "f32"): Fields {
  if (format === "f32") return F32;
  const { signed, exponentBits, mantissaBits, specials }: ScalarLayout = SCALAR_FORMATS[format];
  if (specials === "integer" || specials === "symmetric") return [1, 0, exponentBits + mantissaBits];
  return [signed ? 1 : 0, exponentBits, mantissaBits];
}

/** Sign, exponent and fraction of a code, as digits. */
export function Bits({ code, format }: { readonly code: number; readonly format: ScalarFormat | "f32" }) {
  const fields = fieldsOf(format);
  const width = fields.reduce((sum, bits) => sum + bits, 0);
  const digits = code.toString(2).padStart(width, "0");
  const parts = NAMES.map((name, i) => {
    const start = fields.slice(0, i).reduce((sum, bits) => sum + bits, 0);
    return { name, text: digits.slice(start, start + (fields[i] as number)) };
  }).filter(({ text }) => text !== "");
  return (
    <span class="bits" role="img" aria-label={parts.map(({ name, text }) => `${name} ${text}`).join(", ")}>
      {parts.map(({ name, text }) => (
        <span class={name} key={name}>
          {text}
        </span>
      ))}
    </span>
  );
}
