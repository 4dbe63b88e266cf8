/**
 * The functions of numerics.md §7.6, written from that page only: f64 operations, each rounded, and one rounding to f32 at the
 * end. `conformance/tests/conventions/docs.test.ts` compares the constants here with the page.
 */
const { fround, abs } = Math;

/** Bit patterns of f64. Coefficients are in ascending order of powers. */
export const CONSTANTS = {
  LOG2E: ["3FF71547652B82FE"],
  LN2: ["3FE62E42FEFA39EF"],
  THIRD: ["3FD5555555555555"],
  EXP2: [
    "3FF0000000000000",
    "3FE62E42FEF95EC2",
    "3FCEBFBE045F90BA",
    "3FAC6B08DC5E381B",
    "3F83B2A1B6D1AC24",
    "3F55D874C7A0209E",
    "3F244400329185F6",
    "3EF00DC4E519A938",
  ],
  LOG: ["4000000000004A19", "3FE555554DAD28F2", "3FD999A9C8D66D4D", "3FD2432C0E5FD678", "3FCE3AF8A0BA5C58"],
  ERF: [
    "3FF20DD7504007E6",
    "BFD8127465FB983C",
    "3FBCE2F0798AE81F",
    "BF9B829A7A5E0219",
    "3F75628EDEF9B63E",
    "BF4BCBE9A8871160",
    "3F1D82692098D811",
    "BEE43840579EFD47",
  ],
  ERFC: [
    "3F31D1C45186E371",
    "BFFA13014E49A3E7",
    "BFED3BB45B8BBD4E",
    "BFC4059252664510",
    "3FA29F32B6D98DB6",
    "BF78D9A6FF74A13E",
    "3F44DECB0FA9194F",
    "BF00696CBD736CDF",
  ],
  GELU: ["C0026AEC2A847833", "BFBA5A7D16A48D66"],
  GELU_DERIVATIVE: ["3FF9884540000000", "3FCB6676E0000000"],
  QGELU: ["3FFB3B6460000000"],
} as const;

/** The f64 values of the constants under one name. */
export function constants(name: keyof typeof CONSTANTS): Float64Array {
  return new Float64Array(BigUint64Array.from(CONSTANTS[name], (bits) => BigInt(`0x${bits}`)).buffer);
}

const [LOG2E, LN2, THIRD] = (["LOG2E", "LN2", "THIRD"] as const).map((name) => constants(name)[0]) as [
  number,
  number,
  number,
];
const [P0, P1, P2, P3, P4, P5, P6, P7] = Array.from(constants("EXP2")) as [
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
];
const [LOG, ERF, ERFC] = (["LOG", "ERF", "ERFC"] as const).map(constants) as [
  Float64Array,
  Float64Array,
  Float64Array,
];

function horner(coefficients: Float64Array, x: number): number {
  let sum = coefficients[coefficients.length - 1] as number;
  for (let i = coefficients.length - 2; i >= 0; i--) sum = sum * x + (coefficients[i] as number);
  return sum;
}

/** 2^n at index n + 1023, where the exponent fields 0 and 2047 stand for zero and infinity. */
const POWERS = Float64Array.from({ length: 2048 }, (_, field) => (field === 0 ? 0 : 2 ** (field - 1023)));

/**
 * Adding this constant to an f64 rounds it to an integer, because no fraction bits are left. The constant is odd, so a
 * tie goes to the odd integer.
 */
const ROUNDING_CONSTANT = 1.5 * 2 ** 52 + 1023;

/** 2^t in f64. */
export function exp2(t: number): number {
  const clamped = Math.min(Math.max(t, -1023), 1024);
  const n = clamped + ROUNDING_CONSTANT - ROUNDING_CONSTANT;
  const f = clamped - n;
  const p = ((((((P7 * f + P6) * f + P5) * f + P4) * f + P3) * f + P2) * f + P1) * f + P0;
  return p * (POWERS[n + 1023] as number);
}

const word = new DataView(new ArrayBuffer(8));

/** The functions without the final rounding to f32. */
export const UNROUNDED = {
  exp: (x: number): number => exp2(x * LOG2E),
  sigmoid: (x: number): number => 1 / (1 + exp2(x * -LOG2E)),
  log(x: number): number {
    if (Number.isNaN(x) || x < 0) return Number.NaN;
    if (x === 0) return -1 / 0;
    if (x === 1 / 0) return x;
    word.setFloat64(0, x);
    let n = (word.getUint32(0) >>> 20) - 1023;
    word.setUint32(0, (word.getUint32(0) & 0xfffff) | 0x3ff00000);
    let m = word.getFloat64(0);
    if (m >= Math.SQRT2) {
      n += 1;
      m /= 2;
    }
    const s = (m - 1) / (m + 1);
    return n * LN2 + s * horner(LOG, s * s);
  },
  tanh(x: number): number {
    const a = abs(x);
    if (a < 2 ** -10) return x * (1 - a * a * THIRD);
    const e = exp2(a * (-2 * LOG2E));
    return Math.sign(x) * ((1 - e) / (1 + e));
  },
  erf(x: number): number {
    const a = abs(x);
    if (a < 1) return x * horner(ERF, a * a);
    return Math.sign(x) * (1 - exp2(horner(ERFC, Math.min(a, 4))));
  },
};

export const exp = (x: number): number => fround(UNROUNDED.exp(x));
export const sigmoid = (x: number): number => fround(UNROUNDED.sigmoid(x));
export const log = (x: number): number => fround(UNROUNDED.log(x));
export const tanh = (x: number): number => fround(UNROUNDED.tanh(x));
export const erf = (x: number): number => fround(UNROUNDED.erf(x));
