/** The options of a run that accepts any order. */
import { callable, oneOf, optionsOf } from "../../../src/options.js";
import { ACCUMULATOR_NAMES, type AccumulatorName } from "../../../src/orders/accumulators.js";
import { type ConformanceOptions, RUN_OPTIONS } from "../run-options.js";

/** The options of a run that accepts any order. */
export interface OrderOptions extends Pick<ConformanceOptions, "runs" | "seed" | "operations" | "supported"> {
  /**
   * The accumulator that the kernel declares. Default: f32 for f32 operands, and f32 as tensor cores add for narrower ones.
   */
  readonly accumulator?: AccumulatorName | undefined;
  /** Called after each input. */
  readonly onProgress?: ((progress: { readonly done: number; readonly planned: number }) => void) | undefined;
}

const { runs, seed, operations, supported } = RUN_OPTIONS;

/** Checks the options of `acceptAnyOrder`. */
export const checkOrderOptions = optionsOf<OrderOptions>({
  runs,
  seed,
  operations,
  supported,
  accumulator: oneOf(ACCUMULATOR_NAMES),
  onProgress: callable,
});
