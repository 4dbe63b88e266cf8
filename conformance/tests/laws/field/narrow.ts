/** Casts to narrow formats as reference code in the field does them: by the exponent of a double, ties to even. */

const FORMATS = {
  e4m3: { mantissa: 3, least: -6, max: 448, nan: 0x7f, sign: 0x80, bias: 7 },
  e5m2: { mantissa: 2, least: -14, max: 57344, nan: 0x7f, sign: 0x80, bias: 15 },
  e2m1: { mantissa: 1, least: 0, max: 6, nan: 7, sign: 8, bias: 1 },
  e4m3fnuz: { mantissa: 3, least: -7, max: 240, nan: 0x80, sign: 0x80, bias: 8 },
} as const;
type Format = keyof typeof FORMATS;

/** Whether a fraction of a step rounds up. */
export type Up = (fraction: number, isOdd: boolean, isNegative: boolean) => boolean;

const nearestEven: Up = (fraction, isOdd) => fraction > 0.5 || (fraction === 0.5 && isOdd);

/**
 * The code of a number. Values beyond the largest finite value become `overflowCode`, by default the code of the largest value.
 */
export function encodeBy(roundsUp: Up, overflowCode?: number) {
  return (x: number, format: Format): number => {
    const { mantissa, least, max, nan, sign, bias } = FORMATS[format];
    if (Number.isNaN(x)) return nan;
    const isNegative = x < 0 || Object.is(x, -0);
    const a = Math.abs(x);
    const field = a === 0 ? least : Math.max(Math.floor(Math.log2(a)), least);
    const exponentOfValue =
      a < 2 ** field && field > least ? field - 1 : a >= 2 ** (field + 1) ? field + 1 : field;
    const units = a / 2 ** (exponentOfValue - mantissa);
    const floor = Math.floor(units);
    const roundedUnits = floor + (roundsUp(units - floor, floor % 2 === 1, isNegative) ? 1 : 0);
    const isBeyond = a === Infinity || roundedUnits * 2 ** (exponentOfValue - mantissa) > max;
    const largest =
      FORMATS[format] === FORMATS.e4m3fnuz ? 0x7f : format === "e4m3" ? 0x7e : format === "e5m2" ? 0x7b : 7;
    // a carry propagates into the exponent
    const code = isBeyond
      ? (overflowCode ?? largest)
      : (exponentOfValue + bias - 1) * 2 ** mantissa + roundedUnits;
    // a code of minus zero would be NaN in fnuz formats
    if (code === 0 && nan === sign) return 0;
    return code + (isNegative ? sign : 0);
  };
}

/** The code of a number: ties to even, saturating. */
export const encode = encodeBy(nearestEven);

/** The value of a code without a NaN. */
export function decode(code: number, format: Format): number {
  const { mantissa, sign, bias } = FORMATS[format];
  const magnitude = code % sign;
  const field = Math.floor(magnitude / 2 ** mantissa);
  const units = (magnitude % 2 ** mantissa) + (field === 0 ? 0 : 2 ** mantissa);
  return (code >= sign ? -1 : 1) * units * 2 ** (Math.max(field, 1) - bias - mantissa);
}
