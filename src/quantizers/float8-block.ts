/** FP8 with an f32 scale for each 1x128 or 128x128 block. */
import type { ScalarFormat } from "../formats/scalar.js";
import { anything, atLeastZero, boolean, oneOf, optionsOf } from "../options.js";
import { makeSpec, QUANTIZER_OPTIONS, Quantizer, type QuantizerOptions } from "./quantizer.js";

/** What `Float8BlockQuantizer` takes; every field may be left out. */
export interface Float8BlockQuantizerOptions extends QuantizerOptions {
  /** Default e4m3. */
  readonly format?: ScalarFormat | undefined;
  /** Default 1x128 (activations, gradients); weights take 128x128. */
  readonly tile?: "1x128" | "128x128" | undefined;
  /** Cut scales to powers of two. Default true. */
  readonly pow2Scales?: boolean | undefined;
  /** Lower bound of a block's amax. Default 0. */
  readonly amaxEpsilon?: number | undefined;
  /**
   * `GEMM_READY` stores columnwise data and scales transposed, as a GEMM reads them; `COMPACT` leaves both as
   * the blocks lie in the input, as an all-gather wants them (1x128 only). Default GEMM_READY.
   */
  readonly dataLayout?: "GEMM_READY" | "COMPACT" | undefined;
}

const checkOptions = optionsOf<Float8BlockQuantizerOptions>({
  ...QUANTIZER_OPTIONS,
  format: anything,
  tile: anything,
  pow2Scales: boolean,
  amaxEpsilon: atLeastZero,
  dataLayout: oneOf(["GEMM_READY", "COMPACT"]),
});

/**
 * Block-scaled FP8 (numerics.md §3). No alignment is needed; blocks at the edges cover what exists.
 *
 * @throws `ArgumentError` for an option outside its domain.
 */
export class Float8BlockQuantizer extends Quantizer {
  constructor(options: Float8BlockQuantizerOptions = {}) {
    checkOptions("Float8BlockQuantizer", options);
    const { format, tile, amaxEpsilon, pow2Scales = true, dataLayout } = options;
    const compact = dataLayout === "COMPACT";
    super(makeSpec("fp8-block", { format, tile, amaxEpsilon: amaxEpsilon, pow2Scales, compact }), options);
  }
}
