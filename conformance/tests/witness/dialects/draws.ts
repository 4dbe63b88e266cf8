/**
 * The inputs that the packages of conformance/vectors/dialects received, as scripts/witness/dialects/draws.py makes them: f32 bit
 * patterns, their upper halves for bf16, or bytes of a stored tensor. Everything is computed with integers.
 */

const SIGN = 0x80000000;
const LARGEST = 0x7f7fffff;
/** Significands whose multiples by powers of two are thresholds of a scale rule, and distances from them. */
const SIGNIFICANDS = [0x000000, 0x400000, 0x600000, 0x700000, 0x780000];
const STEPS = [-2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 21, 22, 23, 24, 32, 48, 64];

export type DrawnDType = "f32" | "bf16" | "u8";

/** The murmur3 finalizer of seed + i * 0x9e3779b9. */
function wordAt(seed: number, i: number): number {
  let x = (seed + Math.imul(i, 0x9e3779b9)) >>> 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

const spreadBits = (bits: number): number => Math.imul(bits, 0x85ebca6b) >>> 0;
const goldenBits = (bits: number): number => Math.imul(bits, 0x9e3779b9) >>> 0;
const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

/** The sum of the centred bytes of a word, divided by 128: nearly normal. If it is not zero, thirteen more bits follow. */
function bellBits(word: number): number {
  const sum = (word & 0xff) + ((word >>> 8) & 0xff) + ((word >>> 16) & 0xff) + (word >>> 24) - 510;
  float[0] = sum / 128;
  const pattern = bits[0] as number;
  return sum === 0 ? pattern : pattern | (spreadBits(word) >>> 19);
}

function outlierBits(bits: number): number {
  const pattern = bellBits(bits);
  const isLarge = goldenBits(bits) >>> 26 === 0 && (pattern & 0x7fffffff) !== 0;
  return isLarge ? pattern + ((5 + (bits & 7)) << 23) : pattern;
}

function zeros(bits: number, i: number): number {
  const sign = bits & SIGN;
  switch (wordAt(77, i >>> 4) % 5) {
    case 0:
      return 0;
    case 1:
      return SIGN;
    case 2:
      return sign;
    case 3:
      return (bits & 15) === 0 ? sign | 0x00010000 : sign;
    default:
      return bellBits(bits);
  }
}

const wideBits = (bits: number): number =>
  (bits & SIGN) | ((((bits >>> 8) & 31) + 111) << 23) | (spreadBits(bits) & 0x7fffff);

const tinyBits = (bits: number): number => (bits & SIGN) | ((bits & 0xffffff) + (((bits >>> 24) & 3) << 23));

const hugeBits = (bits: number): number =>
  (bits & SIGN) |
  ((bits & 0xff) === 0 ? LARGEST : ((239 + ((bits >>> 8) & 15)) << 23) | (spreadBits(bits) & 0x7fffff));

const saltedWith = (pattern: number) => (bits: number) =>
  goldenBits(bits) >>> 24 === 0 ? (bits & SIGN) | pattern : bellBits(bits);

const VALUES: Readonly<
  Record<string, readonly [seed: number, pattern: (bits: number, i: number) => number]>
> = {
  normal: [101, bellBits],
  outliers: [102, outlierBits],
  wide: [103, wideBits],
  zeros: [104, zeros],
  zero: [105, (bits) => bits & SIGN],
  tiny: [106, tinyBits],
  huge: [107, hugeBits],
  nan: [108, saltedWith(0x7fc00000)],
  infinity: [109, saltedWith(0x7f800000)],
  ragged: [101, bellBits],
};

/** A fraction that is a tie at three, two or one bits, one unit from such a tie, or arbitrary. */
function fraction(bits: number, ulp: number): number {
  const [kind, low] = [bits & 15, bits >>> 9];
  const three = (((low & 7) << 4) | 8) << 16;
  const twoBits = (((low & 3) << 5) | 16) << 16;
  const oneBits = (((low & 1) << 6) | 32) << 16;
  if (kind >= 12) return spreadBits(bits) & (ulp === 1 ? 0x7fffff : 0x7f0000);
  if (kind <= 3) return three;
  if (kind <= 6) return oneBits;
  return [twoBits, three + ulp, three - ulp, oneBits + ulp, oneBits - ulp][kind - 7] as number;
}

/** A pattern at most `amax`, some binades below it. */
function valueBelow(amax: number, bits: number, ulp: number): number {
  const nearValue = (bits >>> 4) & 31;
  const binades = nearValue < 16 ? nearValue & 3 : nearValue < 28 ? nearValue & 7 : nearValue - 10;
  const exponent = Math.max((amax >>> 23) - binades, 0);
  const pattern = (bits & 15) === 0 ? 0 : ((exponent << 23) | fraction(bits, ulp)) >>> 0;
  return Math.min(pattern, amax) | (bits & SIGN);
}

function stepAmax(row: number): number {
  const [significand, step] = [Math.floor(row / STEPS.length) % SIGNIFICANDS.length, row % STEPS.length];
  const exponent = Math.floor(row / (STEPS.length * SIGNIFICANDS.length));
  const pattern = exponent * 2 ** 23 + (SIGNIFICANDS[significand] as number) + (STEPS[step] as number);
  return Math.min(Math.max(pattern, 0), LARGEST);
}

/** The sweeps: one row for each amax. The amax is the magnitude of the row's first element. */
const SWEEPS: Readonly<Record<string, readonly [seed: number, amax: (row: number) => number]>> = {
  amax: [1, (row) => row << 16],
  steps: [2, stepAmax],
  window: [3, (row) => (0x3400 + row) << 16],
};

function patternOf(kind: string, dtype: DrawnDType, columns: number): (i: number) => number {
  const sweep = SWEEPS[kind];
  if (sweep !== undefined) {
    const [seed, amaxOf] = sweep;
    const ulp = dtype === "f32" ? 1 : 1 << 16;
    return (i) => {
      const [amax, bits] = [amaxOf(Math.floor(i / columns)), wordAt(seed, i)];
      return i % columns === 0 ? amax | (bits & SIGN) : valueBelow(amax, bits, ulp);
    };
  }
  const row = VALUES[kind];
  if (row === undefined) throw new Error(`there is no case named ${kind}`);
  const [seed, pattern] = row;
  return (i) => pattern(wordAt(seed, i), i);
}

/** The bit patterns of a case, in row-major order. */
export function drawValues(
  kind: string,
  dtype: DrawnDType,
  [rows, columns]: readonly [number, number],
): Uint8Array | Uint16Array | Uint32Array {
  const count = rows * columns;
  if (dtype === "u8") return Uint8Array.from({ length: count }, (_, i) => wordAt(110, i) & 0xff);
  const pattern = patternOf(kind, dtype, columns);
  if (dtype === "f32") return Uint32Array.from({ length: count }, (_, i) => pattern(i) >>> 0);
  return Uint16Array.from({ length: count }, (_, i) => pattern(i) >>> 16);
}
