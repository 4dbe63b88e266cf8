// Opens the GPU for the benchmarks: the backend, and the addon itself for functions that the public interface does not offer.
import { openBackend, tensor } from "lockstep";

/** Random bf16 values of either sign over a few binades, on the GPU. The same seed gives the same values. */
export function randomBf16(backend, shape, seed) {
  const count = shape.reduce((product, size) => product * size, 1);
  const bits = new Uint16Array(count);
  let state = seed | 1;
  for (let i = 0; i < count; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    // sign, an exponent from 2^-4 to 2^3, seven mantissa bits
    bits[i] = (state & 0x807f) | ((123 + ((state >>> 20) & 7)) << 7);
  }
  return tensor(backend, bits, shape, "bf16");
}

/** Opens device 0. `wait` returns after all enqueued work has completed. */
export async function openDevice() {
  const backend = await openBackend("cuda");
  const probe = tensor(backend, [0]);
  return { backend, wait: () => probe.dataSync() };
}
