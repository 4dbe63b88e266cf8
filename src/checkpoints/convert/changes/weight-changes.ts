/** Types for the report of a conversion. */

/**
 * How a weight gets its new form: as wide values, with codes and scales repacked without rounding, or quantized from its values.
 */
export type ConversionMethod = "dequantized" | "repacked" | "quantized";

/** What a conversion changed in one weight. */
export interface WeightChanges {
  /** The name of the weight. */
  readonly name: string;
  /** How the weight got its new form. */
  readonly method: ConversionMethod;
  /** The number of elements. */
  readonly elements: number;
  /** The number of elements whose value changed. */
  readonly changed: number;
  /** The largest magnitude of a difference. */
  readonly max: number;
  /** The largest magnitude of a difference divided by the value before; infinite if a zero changed. */
  readonly relative: number;
  /** The sum of the squares of the differences. */
  readonly noise: number;
  /** The sum of the squares of the values before; 0 if nothing changed. */
  readonly signal: number;
}
