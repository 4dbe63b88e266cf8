// Element-wise functions on one chunk, an array of f32 in scratch memory (core/scratch.ts). Each function processes
// `count` values in place and may overwrite the padding up to the next multiple of four. The functions are small and
// called often, so that JavaScript engines compile them early.
import { exp4 } from "./math";

/** values[i] = value. */
export function fill(values: usize, value: f32, count: usize): void {
  const x = f32x4.splat(value);
  for (const end = values + (count << 2); values < end; values += 16) v128.store(values, x);
}

/** values[i] += terms[i]. */
export function addEach(values: usize, terms: usize, count: usize): void {
  for (const end = values + (count << 2); values < end; values += 16, terms += 16) {
    v128.store(values, f32x4.add(v128.load(values), v128.load(terms)));
  }
}

/** values[i] += term. */
export function addScalar(values: usize, term: f32, count: usize): void {
  const x = f32x4.splat(term);
  for (const end = values + (count << 2); values < end; values += 16) {
    v128.store(values, f32x4.add(v128.load(values), x));
  }
}

/** values[i] *= factors[i]. */
export function multiply(values: usize, factors: usize, count: usize): void {
  for (const end = values + (count << 2); values < end; values += 16, factors += 16) {
    v128.store(values, f32x4.mul(v128.load(values), v128.load(factors)));
  }
}

/** values[i] *= factor. */
export function multiplyScalar(values: usize, factor: f32, count: usize): void {
  const x = f32x4.splat(factor);
  for (const end = values + (count << 2); values < end; values += 16) {
    v128.store(values, f32x4.mul(v128.load(values), x));
  }
}

/** values[i] /= divisor. */
export function divideScalar(values: usize, divisor: f32, count: usize): void {
  const x = f32x4.splat(divisor);
  for (const end = values + (count << 2); values < end; values += 16) {
    v128.store(values, f32x4.div(v128.load(values), x));
  }
}

/** values[i] = e^(values[i] - top). */
export function exponentials(values: usize, top: f32, count: usize): void {
  const shift = f32x4.splat(top);
  for (const end = values + (count << 2); values < end; values += 16) {
    v128.store(values, exp4(f32x4.sub(v128.load(values), shift)));
  }
}

/** values[i] = min(max(values[i], low), high); NaN propagates. */
export function clamp(values: usize, low: f32, high: f32, count: usize): void {
  const floor = f32x4.splat(low);
  const ceiling = f32x4.splat(high);
  for (const end = values + (count << 2); values < end; values += 16) {
    v128.store(values, f32x4.pmax(f32x4.pmin(v128.load(values), ceiling), floor));
  }
}

/** values[i] = 0 where inputs[i] < low or > high. */
export function clearBeyond(values: usize, inputs: usize, low: f32, high: f32, count: usize): void {
  const floor = f32x4.splat(low);
  const ceiling = f32x4.splat(high);
  for (const end = values + (count << 2); values < end; values += 16, inputs += 16) {
    const x = v128.load(inputs);
    const beyond = v128.or(f32x4.lt(x, floor), f32x4.gt(x, ceiling));
    v128.store(values, v128.andnot(v128.load(values), beyond));
  }
}
