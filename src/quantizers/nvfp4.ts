/** NVFP4: an E4M3 scale for each 16 elements, under one f32 factor for the tensor. */
import { RHT_SIGNS } from "../ops/quantize/hadamard.js";
import type { QuantizeInputs } from "../ops/quantize/quantize.js";
import { anything, boolean, oneOf, optionsOf } from "../options.js";
import type { FourOverSix } from "../tensor/quantized.js";
import { requireScalar, requireTogether } from "../tensor/require.js";
import { FOUR_OVER_SIX } from "../tensor/spec.js";
import type { Tensor } from "../tensor/tensor.js";
import {
  makeSpec,
  QUANTIZER_OPTIONS,
  Quantizer,
  type QuantizerOptions,
  RandomState,
  randomState,
} from "./quantizer.js";

/** What `NVFP4Quantizer` takes; every field may be left out. */
export interface NVFP4QuantizerOptions extends QuantizerOptions {
  /**
   * Default 1x16; 16x16 gives both directions the same scales, and rounding to nearest the same codes (weights), except where
   * 4over6 sums the errors of a tile in another order and chooses otherwise (numerics.md §5.8).
   */
  readonly tile?: "1x16" | "16x16" | undefined;
  /** Transform columnwise data first (bf16 input). Default false. */
  readonly rht?: boolean | undefined;
  /** With `rht`: the fixed sign vector, or none. Default true. */
  readonly randomSigns?: boolean | undefined;
  /** Round elements stochastically, with words from `random`. Default false. */
  readonly stochastic?: boolean | undefined;
  /** Where stochastic rounding draws from. Default: a state of its own with seed 0. */
  readonly random?: RandomState | undefined;
  /** Choose per block between a maximum of 6 and of 4 by the smaller error. Default none. */
  readonly fourOverSix?: FourOverSix | undefined;
  /** The largest block scale. Default 448, with 4over6 256. */
  readonly e4m3Max?: 448 | 256 | undefined;
  /** Use these in place of the tensor's own amax, f32 [1]: a group's maximum, so neither negative nor NaN. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** As `amax`, for the columnwise copy, whose data may have been transformed. */
  readonly amaxColumnwise?: Tensor<"f32"> | undefined;
}

const checkOptions = optionsOf<NVFP4QuantizerOptions>({
  ...QUANTIZER_OPTIONS,
  tile: anything,
  rht: boolean,
  randomSigns: boolean,
  stochastic: boolean,
  random: randomState,
  fourOverSix: oneOf(FOUR_OVER_SIX),
  e4m3Max: oneOf([448, 256]),
  amax: requireScalar,
  amaxColumnwise: requireScalar,
});

/**
 * Two-level scaled FP4 (numerics.md §5). Rows and columns must be multiples of 16.
 *
 * @throws `ArgumentError` for an option outside its domain, `DTypeError` or `ShapeError` for a scale or an amax that is not
 * f32 [1], `DisposedError` for a tensor that was disposed of.
 */
export class NVFP4Quantizer extends Quantizer {
  /** Where stochastic rounding draws from; each quantization takes one offset. */
  readonly random: RandomState;
  readonly #amax: Pick<QuantizeInputs, "amax" | "amaxColumnwise">;

  constructor(options: NVFP4QuantizerOptions = {}) {
    checkOptions("NVFP4Quantizer", options);
    const { tile, rht = false, stochastic = false, fourOverSix = "none" } = options;
    requireTogether("NVFP4Quantizer", options.amax, options.amaxColumnwise);
    const rhtSigns = rht && options.randomSigns !== false ? RHT_SIGNS : 0;
    const e4m3Max = options.e4m3Max ?? (fourOverSix === "none" ? 448 : 256);
    super(makeSpec("nvfp4", { tile, rht, rhtSigns, stochastic, fourOverSix, e4m3Max }), options);
    this.random = options.random ?? new RandomState(0n);
    this.#amax = { amax: options.amax, amaxColumnwise: options.amaxColumnwise };
  }

  /** Amaxes that were given and, where it rounds stochastically, the next random bits. */
  protected override inputs(): QuantizeInputs {
    return this.spec.stochastic ? { ...this.#amax, random: this.random.current } : this.#amax;
  }

  /** Where it rounds stochastically, moves on to the next offset. */
  protected override quantized(): void {
    if (this.spec.stochastic) this.random.next();
  }
}
