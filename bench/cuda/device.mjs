// Opens the GPU for the benchmarks: the backend, and the addon itself for functions that the public interface does not offer.
import { openBackend, tensor } from "lockstep";

/** xorshift32. */
function generator(seed) {
  let state = seed | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state;
  };
}

/** Random bf16 values of either sign over a few binades, on the GPU. The same seed gives the same values. */
export function randomBf16(backend, shape, seed) {
  const count = shape.reduce((product, size) => product * size, 1);
  const bits = new Uint16Array(count);
  const next = generator(seed);
  for (let i = 0; i < count; i++) {
    const state = next();
    // sign, an exponent from 2^-4 to 2^3, seven mantissa bits
    bits[i] = (state & 0x807f) | ((123 + ((state >>> 20) & 7)) << 7);
  }
  return tensor(backend, bits, shape, "bf16");
}

/** As above, but normally distributed with variance 1: 4096 different numbers in random order. */
export function normalBf16(backend, shape, seed) {
  const count = shape.reduce((product, size) => product * size, 1);
  const next = generator(seed);
  const uniform = () => ((next() >>> 0) + 1) / 2 ** 32;
  const normals = Float32Array.from({ length: 4096 }, () => {
    return Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
  });
  const codes = Uint16Array.from(new Uint32Array(normals.buffer), (bits) => bits >>> 16);
  const drawn = new Uint16Array(count);
  for (let i = 0; i < count; i++) drawn[i] = codes[(next() >>> 12) & 4095];
  return tensor(backend, drawn, shape, "bf16");
}

const weights = new Map();

/** Weights of ordinary magnitude. They are equal for equal numbers of elements, which is faster than random ones. */
export function initMethod(_, shape) {
  const count = shape.reduce((product, size) => product * size, 1);
  let values = weights.get(count);
  if (!values) {
    values = new Float32Array(count);
    for (let i = 0; i < count; i++) values[i] = ((i * 40503) % 65536) / 2 ** 20 - 2 ** -5;
    weights.set(count, values);
  }
  return values;
}

/** Opens device 0. `wait` returns after all enqueued work has completed. */
export async function openDevice() {
  const backend = await openBackend("cuda");
  const probe = tensor(backend, [0]);
  return { backend, wait: () => probe.dataSync() };
}
