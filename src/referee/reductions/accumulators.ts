/**
 * The accumulators of all threads of a reduction (aten/src/ATen/native/SharedReduceOps.h). A slot is the number of an
 * accumulator.
 */
import { fma } from "../float32.js";

/** An array of accumulators. */
export interface Accumulators {
  /** Sets the slots from `begin` up to `end` to the identity. */
  clear(begin: number, end: number): void;
  /**
   * Adds the inputs from `begin` up to `end` to slots 0, 1, …, `slots` - 1, one input to each slot, then to slot 0 again, and so
   * on.
   */
  addAll(inputs: Float32Array, begin: number, end: number, slots: number): void;
  /** Adds one input to a slot. */
  add(slot: number, input: number): void;
  /** Combines slot `otherSlot` into slot `slot`. */
  combine(slot: number, otherSlot: number): void;
}

/**
 * Combines `count` slots, `stride` apart, into slot `firstSlot`: the upper half is combined into the lower half until one slot is
 * left.
 */
export function combineHalves(state: Accumulators, firstSlot: number, count: number, stride: number): void {
  for (let half = count / 2; half >= 1; half /= 2)
    for (let i = 0; i < half; i++) state.combine(firstSlot + i * stride, firstSlot + (i + half) * stride);
}

/** Accumulators that consist of one f32 number. */
export class NumberAccumulators implements Accumulators {
  readonly values: Float32Array;
  readonly #identity: number;
  readonly #add: (sum: number, input: number) => number;
  readonly #combine: (a: number, b: number) => number;

  constructor(
    slots: number,
    identity: number,
    add: (sum: number, input: number) => number,
    combine: (a: number, b: number) => number,
  ) {
    this.values = new Float32Array(slots);
    this.#identity = identity;
    this.#add = add;
    this.#combine = combine;
  }

  clear(begin: number, end: number): void {
    this.values.fill(this.#identity, begin, end);
  }

  addAll(inputs: Float32Array, begin: number, end: number, slots: number): void {
    const [values, add] = [this.values, this.#add];
    let slot = 0;
    for (let i = begin; i < end; i++) {
      values[slot] = add(values[slot] as number, inputs[i] as number);
      if (++slot === slots) slot = 0;
    }
  }

  add(slot: number, input: number): void {
    this.values[slot] = this.#add(this.values[slot] as number, input);
  }

  combine(slot: number, otherSlot: number): void {
    this.values[slot] = this.#combine(this.values[slot] as number, this.values[otherSlot] as number);
  }
}

/**
 * Accumulators of Welford's method (`WelfordOps`): a mean, a sum of squared deviations from it, and a count. An input x gives
 * d = x - mean, mean += d / n with the new count n, and squares = fma(d, x - mean, squares) with the new mean. Combining a and b,
 * with counts n and m, gives d = b.mean - a.mean, q = m / (n + m), mean = fma(d, q, a.mean) and
 * squares = fma((d * d) * n, q, a.squares + b.squares). Each operation is rounded to f32.
 */
export class WelfordAccumulators implements Accumulators {
  readonly means: Float32Array;
  /** Sums of squared deviations from the mean. */
  readonly squares: Float32Array;
  readonly counts: Float32Array;

  constructor(slots: number) {
    this.means = new Float32Array(slots);
    this.squares = new Float32Array(slots);
    this.counts = new Float32Array(slots);
  }

  clear(begin: number, end: number): void {
    for (const values of [this.means, this.squares, this.counts]) values.fill(0, begin, end);
  }

  addAll(inputs: Float32Array, begin: number, end: number, slots: number): void {
    let slot = 0;
    for (let i = begin; i < end; i++) {
      this.add(slot, inputs[i] as number);
      if (++slot === slots) slot = 0;
    }
  }

  add(slot: number, input: number): void {
    const [means, squares, counts] = [this.means, this.squares, this.counts];
    const count = (counts[slot] as number) + 1;
    const mean = means[slot] as number;
    const delta = Math.fround(input - mean);
    const newMean = Math.fround(mean + Math.fround(delta / count));
    means[slot] = newMean;
    squares[slot] = fma(delta, Math.fround(input - newMean), squares[slot] as number);
    counts[slot] = count;
  }

  combine(slot: number, otherSlot: number): void {
    const [means, squares, counts] = [this.means, this.squares, this.counts];
    const [count, otherCount] = [counts[slot] as number, counts[otherSlot] as number];
    if (otherCount === 0) return;
    if (count === 0) {
      for (const values of [means, squares, counts]) values[slot] = values[otherSlot] as number;
      return;
    }
    const delta = Math.fround((means[otherSlot] as number) - (means[slot] as number));
    const total = Math.fround(count + otherCount);
    const share = Math.fround(otherCount / total);
    const deltaSquares = Math.fround(Math.fround(delta * delta) * count);
    const sumOfSquares = Math.fround((squares[slot] as number) + (squares[otherSlot] as number));
    means[slot] = fma(delta, share, means[slot] as number);
    squares[slot] = fma(deltaSquares, share, sumOfSquares);
    counts[slot] = total;
  }
}
