/** Numbers in the notation of the page. */

/** A sign, then a decimal, a power as in 2^-9, a word, or the bits of an f32 in eight hexadecimal digits. */
const FACTOR =
  /^([+-]?)(?:(nan)|(inf(?:inity)?|∞)|0x([0-9a-f]{8})|(\d*\.?\d+(?:e[+-]?\d+)?|\d+\.)(?:\^([+-]?\d+))?)$/i;

/**
 * Parses a number: `0.3`, `1e-5`, `2^-9`, `1.5*2^-9`, `1/3`, `-0`, `inf`, `nan`, or the bits of an f32, such as `0x3e99999a`.
 * Undefined for anything else.
 */
export function parseNumber(text: string): number | undefined {
  const parts = text
    .trim()
    .replaceAll("−", "-")
    .split(/\s*([*/])\s*/);
  let value = factor(parts[0] ?? "");
  for (let i = 1; i < parts.length && value !== undefined; i += 2) {
    const next = factor(parts[i + 1] ?? "");
    if (next === undefined) return undefined;
    value = parts[i] === "*" ? value * next : value / next;
  }
  return value;
}

function factor(text: string): number | undefined {
  const found = FACTOR.exec(text);
  if (!found) return undefined;
  const [, sign, nan, infinite, bits, base, power] = found;
  const magnitude = nan
    ? Number.NaN
    : infinite
      ? Number.POSITIVE_INFINITY
      : bits
        ? floatOf(Number.parseInt(bits, 16))
        : Number(base) ** Number(power ?? 1);
  return sign === "-" ? -magnitude : magnitude;
}

const scratch = new DataView(new ArrayBuffer(8));

/** The f32 with these bits. */
export function floatOf(bits: number): number {
  scratch.setUint32(0, bits);
  return scratch.getFloat32(0);
}

/** The bits of the f32 that is nearest to a number. */
export function bitsOf(x: number): number {
  scratch.setFloat32(0, x);
  return scratch.getUint32(0);
}

/** Rows of numbers. */
export interface Lines {
  readonly rows: number;
  readonly columns: number;
  readonly values: Float32Array;
}

/** The largest number of rows or columns that the page shows. */
export const MAX_SIZE = 512;

/**
 * Parses numbers separated by spaces, commas or semicolons. Each line is a row; shorter rows are padded with zeros. Returns an
 * error message if the string is invalid.
 */
export function parseLines(text: string): Lines | string {
  const rows = text
    .split(/\r?\n/)
    .map((line) => line.split(/[\s,;[\]()]+/).filter((word) => word !== ""))
    .filter((words) => words.length > 0);
  const columns = rows.reduce((most, row) => Math.max(most, row.length), 0);
  if (columns === 0) return "Paste numbers: each line is a row, and spaces or commas separate numbers.";
  if (rows.length > MAX_SIZE || columns > MAX_SIZE)
    return `There are ${rows.length} rows of up to ${columns} numbers; the page shows at most ${MAX_SIZE} by ${MAX_SIZE}.`;
  const values = new Float32Array(rows.length * columns);
  for (const [r, row] of rows.entries())
    for (const [c, word] of row.entries()) {
      const value = parseNumber(word);
      if (value === undefined) return `“${word.slice(0, 20)}” in row ${r + 1} is not a number.`;
      values[r * columns + c] = value;
    }
  return { rows: rows.length, columns, values };
}
