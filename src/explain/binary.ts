/** Exact properties of binary floating-point numbers, and how to print them. */

const view = new DataView(new ArrayBuffer(8));

/** floor(log2 |x|) of a finite number that is not zero. */
export function floorLog2(x: number): number {
  view.setFloat64(0, x);
  const field = (view.getUint32(0) >>> 20) & 0x7ff;
  return field === 0 ? floorLog2(x * 2 ** 54) - 54 : field - 1023;
}

/** The bits of an f32. */
export function f32Bits(x: number): number {
  view.setFloat32(0, x);
  return view.getUint32(0);
}

/** The f32 with these bits. */
export function f32OfBits(bits: number): number {
  view.setUint32(0, bits);
  return view.getFloat32(0);
}

/** Returns the function that truncates a number toward zero to a multiple of 2^grid. */
export function truncationTo(grid: number): (x: number) => number {
  // two factors: the reciprocal of a small power of two overflows f64
  const half = Math.trunc(grid / 2);
  const first = 2 ** half;
  const second = 2 ** (grid - half);
  return (x) => Math.trunc(x / first / second) * first * second + 0;
}

/** Truncates x toward zero to a multiple of 2^grid. */
export function truncateTo(x: number, grid: number): number {
  return truncationTo(grid)(x);
}

/** Decomposes |x| as significand * 2^exponent with a significand of 53 bits. x is finite and nonzero. */
export function dyadicOf(x: number): { readonly significand: bigint; readonly exponent: number } {
  const exponent = floorLog2(x) - 52;
  // two factors: 2^-exponent may overflow f64
  const half = Math.trunc(exponent / 2);
  return { significand: BigInt(Math.abs(x) / 2 ** half / 2 ** (exponent - half)), exponent };
}

/** Prints a number in C's `%a` format: -0x1.8p-3. Infinities and NaN are words. Every finite number has exactly one form. */
export function hexFloat(x: number): string {
  if (!Number.isFinite(x)) return String(x);
  const sign = x < 0 || Object.is(x, -0) ? "-" : "";
  if (x === 0) return `${sign}0x0p+0`;
  const exponent = floorLog2(x);
  const { significand } = dyadicOf(x);
  const digits = (significand - (1n << 52n)).toString(16).padStart(13, "0").replace(/0+$/, "");
  return `${sign}0x1${digits === "" ? "" : `.${digits}`}p${exponent < 0 ? "-" : "+"}${Math.abs(exponent)}`;
}
