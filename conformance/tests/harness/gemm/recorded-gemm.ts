/** The common fields of recorded GPU products. */
import type { ScalarFormat } from "../../../../src/formats/scalar.js";

/** A product of x, [m, k], and w, [n, k]. */
export interface RecordedGemm<F extends ScalarFormat = ScalarFormat> {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly x: F;
  readonly w: F;
  readonly splitAccumulator: boolean;
  /** The bit patterns of the f32 result, [m, n], in row-major order. */
  readonly bits: string;
}
