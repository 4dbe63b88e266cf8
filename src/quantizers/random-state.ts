/** The state of random bits of quantizers that round stochastically. */
import { guardReceivers, inherits, isObject } from "../brand.js";
import { instance, u64 } from "../options.js";
import type { RandomSource } from "../random.js";

/** A sequence of random sources. Each quantization uses the next offset, so results depend on the order of calls. */
export class RandomState {
  static {
    guardReceivers(this);
  }

  #seed = 0n;
  #offset = 0n;

  /** @internal Whether `x` is a random state, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #seed in x && inherits(this, x);
  }

  /**
   * Throws `ArgumentError` for a seed or offset that is not an unsigned 64-bit integer. Assignments to `seed` and `offset`
   * throw the same.
   */
  constructor(seed: bigint, offset = 0n) {
    this.seed = seed;
    this.offset = offset;
  }

  /** The key of all random bits, an unsigned 64-bit integer. */
  get seed(): bigint {
    return this.#seed;
  }

  set seed(value: bigint) {
    u64("RandomState", "seed", value);
    this.#seed = value;
  }

  /** The offset that the next quantization uses, an unsigned 64-bit integer. */
  get offset(): bigint {
    return this.#offset;
  }

  set offset(value: bigint) {
    u64("RandomState", "offset", value);
    this.#offset = value;
  }

  /** The random source that `next` will return. */
  get current(): RandomSource {
    return { seed: this.#seed, offset: this.#offset };
  }

  /** Returns the current random source and advances the offset by 1. The last offset is followed by 0. */
  next(): RandomSource {
    const { current } = this;
    this.#offset = BigInt.asUintN(64, this.#offset + 1n);
    return current;
  }
}

/** @shared */
export const randomState = instance(RandomState, "a RandomState, such as new RandomState(1n)");
