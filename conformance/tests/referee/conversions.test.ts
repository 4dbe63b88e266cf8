/** Conversions to E8M0 have the code that powers of two between the codes decide. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../src/index.js";
import { conversion } from "../../../src/referee/conversions.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

/** The magnitudes halfway between the powers of two of two codes, from the codes 1 and 2 on. */
const HALFWAY = Float64Array.from({ length: 254 }, (_, i) => 1.5 * 2 ** (i - 126));

/**
 * The code of a magnitude. A value halfway between two powers of two is rounded up, except between the codes 0 and 1: PyTorch
 * rounds 2^-127, the only such value that is subnormal, down. Infinity and NaN have the code 255.
 */
function codeOf(magnitude: number): number {
  if (!Number.isFinite(magnitude)) return 255;
  if (magnitude <= 2 ** -127) return 0;
  return 2 + HALFWAY.findLastIndex((bound) => magnitude >= bound);
}

const asValue = (dtype: "F32" | "BF16" | "F16", codes: Uint32Array | Uint16Array) =>
  ({ dtype, shape: [codes.length], bytes: new Uint8Array(codes.buffer) }) as const;

it("f32 values at and beside each bound become the code of the definition, whatever their sign", () => {
  const fractions = [0, 1, 0x3fffff, 0x400000, 0x400001, 0x600000, 0x7fffff];
  const bits = Uint32Array.from({ length: 512 * fractions.length }, (_, i) => {
    const exponent = Math.floor(i / fractions.length);
    return exponent * 2 ** 23 + (fractions[i % fractions.length] as number);
  });
  const expected = Uint8Array.from(new Float32Array(bits.buffer), (value) => codeOf(Math.abs(value)));
  expect(conversion(backend, asValue("F32", bits), "F8_E8M0").bytes).toEqual(expected);
});

it("every bf16 and f16 value becomes the code of its value", () => {
  const codes = Uint16Array.from({ length: 1 << 16 }, (_, code) => code);
  const halfOf = (code: number): number => {
    const [exponent, fraction] = [(code >> 10) & 31, code & 0x3ff];
    if (exponent === 31) return Number.NaN;
    return exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
  };
  const bfloats = new Float32Array(Uint32Array.from(codes, (code) => code << 16).buffer);
  const expected = { BF16: Float64Array.from(bfloats, Math.abs), F16: Float64Array.from(codes, halfOf) };
  for (const dtype of ["BF16", "F16"] as const)
    expect(conversion(backend, asValue(dtype, codes), "F8_E8M0").bytes).toEqual(
      Uint8Array.from(expected[dtype], codeOf),
    );
});
