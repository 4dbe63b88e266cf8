/** The error of a quantized weight. */

/** The error of a weight against its original. */
export interface OriginalError {
  /** The root mean square of the differences divided by the root mean square of the original. */
  readonly relative: number;
  /** The largest magnitude of a difference. */
  readonly max: number;
}
