/** The base class of quantizers that can round elements stochastically. */
import type { QuantizeInputs } from "../ops/quantize/quantize.js";
import { boolean, type OptionTable } from "../options.js";
import type { QuantizeSpec } from "../tensor/quantized.js";
import { QUANTIZER_OPTIONS, Quantizer, type QuantizerOptions } from "./quantizer.js";
import { RandomState, randomState } from "./random-state.js";

/** Options of quantizers that can round elements stochastically. All fields are optional. */
export interface StochasticQuantizerOptions extends QuantizerOptions {
  /**
   * Whether elements are rounded stochastically, with random bits from `random` (numerics.md, choice 6). Each element has 8
   * random bits, as in the hardware's instruction, so the mean result is closer to zero than the element, by less than 1/256 of
   * the distance of the two codes around it. Nothing that close above a code is ever rounded up: in NVFP4, 0.001 under a block
   * maximum of 6 is always 0. Random bits that are given to `quantize` have 32 bits. Default false.
   */
  readonly stochastic?: boolean | undefined;
  /** The source of random bits for stochastic rounding. Default: a new state with seed 0. */
  readonly random?: RandomState | undefined;
}

/** @shared The checks of these options. */
export const STOCHASTIC_OPTIONS: OptionTable<StochasticQuantizerOptions> = {
  ...QUANTIZER_OPTIONS,
  stochastic: boolean,
  random: randomState,
};

/** A quantizer with a source of random bits, which it uses if its spec rounds stochastically. */
export abstract class StochasticQuantizer extends Quantizer {
  /** The source of random bits for stochastic rounding. Each quantization uses one offset. */
  readonly random: RandomState;

  /**
   * Reads the fields of `StochasticQuantizerOptions`, except `stochastic`, which is a field of the spec. Throws as `Quantizer`
   * does.
   */
  constructor(spec: QuantizeSpec, options: StochasticQuantizerOptions = {}) {
    super(spec, options);
    this.random = options.random ?? new RandomState(0n);
  }

  /** Returns the next random bits if elements are rounded stochastically. */
  protected override inputs(): QuantizeInputs {
    return this.spec.stochastic ? { random: this.random.current } : {};
  }

  /** Advances the random state if elements are rounded stochastically. */
  protected override quantized(): void {
    if (this.spec.stochastic) this.random.next();
  }
}
